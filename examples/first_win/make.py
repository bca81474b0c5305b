"""Makes the files of this folder: entries of an aircraft maintenance log in shorthand, and what they mean in English.

    python examples/first_win/make.py

The shorthand is the trade's, the events are drawn. A published sentence encoder reads English, not a workshop's
abbreviations; the 320 pairs of pairs.csv teach it those of this log. new.csv has 80 pairs more, log.txt all 400
entries.
"""

import csv
import random
from pathlib import Path

PAIRS, ENTRIES = 320, 400
SIDES = {"LH": "left", "RH": "right", "FWD": "forward", "AFT": "rear", "CTR": "centre", "UPR": "upper", "LWR": "lower"}
# Abbreviation: meaning, where it is found, how it fails.
PARTS = {
    "ENG OIL FLTR": ("engine oil filter", "LH RH", "LKG CNTMD LSE"),
    "HYD PMP": ("hydraulic pump", "LH RH CTR", "LKG O/HTG INTMT CHFD"),
    "FUEL BST PMP": ("fuel boost pump", "FWD AFT CTR", "LKG INOP INTMT O/HTG"),
    "MLG BRK ASSY": ("main gear brake", "LH RH", "LKG O/HTG WRN CRKD STK"),
    "NLG STRUT": ("nose gear strut", "UPR LWR", "LKG CORRD CRKD LSE"),
    "BLD AIR VLV": ("bleed air valve", "LH RH", "STK LKG O/TOL INTMT"),
    "PTT PRB HTR": ("pitot probe heater", "LH RH CTR", "INOP INTMT O/TOL"),
    "WX RDR ANT": ("weather radar antenna", "UPR LWR", "INOP INTMT LSE STK"),
    "VHF XCVR": ("radio", "LH RH CTR", "INOP INTMT O/HTG"),
    "DC GEN": ("generator", "LH RH", "INOP O/HTG WRN O/TOL"),
    "MN BATT": ("main battery", "FWD AFT", "O/HTG CORRD LSE O/TOL"),
    "FLP ACTR": ("flap actuator", "LH RH", "STK LKG WRN O/TOL"),
    "AIL TRM TAB": ("aileron trim tab", "LH RH", "STK LSE CRKD O/TOL"),
    "ELEV HNG BRG": ("elevator hinge bearing", "LH RH UPR LWR", "WRN STK CORRD LSE"),
    "RUD PDL": ("rudder pedal", "LH RH", "STK LSE WRN CRKD"),
    "PROP GOV": ("propeller governor", "LH RH", "LKG O/TOL INTMT STK"),
    "IGN EXCTR": ("ignition exciter", "LH RH UPR LWR", "INOP INTMT CHFD"),
    "STBY ALTM": ("standby altimeter", "LH RH", "STK O/TOL INTMT"),
    "W/S WPR": ("windscreen wiper", "LH RH", "WRN INOP LSE STK"),
    "EMER LT": ("emergency light", "FWD AFT CTR", "INOP INTMT CRKD"),
    "STRB LT": ("strobe light", "LH RH UPR LWR", "INOP INTMT CRKD LSE"),
    "O2 CYL": ("oxygen bottle", "FWD AFT", "LKG CORRD LSE"),
    "PAX DR SEAL": ("passenger door seal", "FWD AFT LH RH", "LKG WRN CRKD CHFD"),
    "CGO DR LTCH": ("cargo door latch", "FWD AFT UPR LWR", "STK WRN CORRD LSE"),
    "LAV SMK DET": ("lavatory smoke detector", "FWD AFT", "INOP INTMT CNTMD"),
    "GLY OVN": ("galley oven", "FWD AFT UPR LWR", "INOP O/HTG CNTMD INTMT"),
}
# Abbreviation: meanings, what is done about it.
FINDINGS = {
    "LKG": (("was leaking", "leaked"), "RPLD RTQD TMP-RPRD"),
    "CRKD": (("was cracked", "had a crack"), "RPLD TMP-RPRD DFRD"),
    "CORRD": (("was corroded", "had rusted"), "RPLD CLND O/H"),
    "WRN": (("was worn out", "was worn beyond its limits"), "RPLD O/H DFRD"),
    "INOP": (("did not work", "was dead"), "RPLD O/H DFRD"),
    "INTMT": (("worked only now and then", "failed every so often"), "RPLD CLND O/H DFRD"),
    "O/HTG": (("overheated", "ran too hot"), "RPLD ADJD O/H"),
    "CHFD": (("was chafed", "had been rubbing"), "RPLD ADJD TMP-RPRD"),
    "STK": (("was stuck", "would not move"), "LUBD CLND ADJD RPLD"),
    "O/TOL": (("was out of tolerance", "was out of adjustment"), "ADJD RPLD O/H"),
    "LSE": (("was loose", "had come loose"), "RTQD ADJD"),
    "CNTMD": (("was dirty", "was contaminated"), "CLND RPLD"),
}
ACTIONS = {
    "RPLD": (("It was replaced", "A new one was fitted"), "OPS-CK-OK RTS RE-INSP-50FH"),
    "ADJD": (("It was adjusted", "It was readjusted"), "OPS-CK-OK RTS RE-INSP-50FH"),
    "LUBD": (("It was greased", "It was lubricated"), "OPS-CK-OK RTS RE-INSP-50FH"),
    "CLND": (("It was cleaned", "It was wiped clean"), "OPS-CK-OK RTS RE-INSP-50FH"),
    "RTQD": (("Its bolts were tightened", "Its bolts were torqued"), "OPS-CK-OK RTS RE-INSP-50FH"),
    "TMP-RPRD": (("It was repaired for the time being", "A temporary repair was made"), "AWTG-PRTS RE-INSP-50FH"),
    "O/H": (("It went out for overhaul", "It was sent away for an overhaul"), "AWTG-PRTS RTS"),
    "DFRD": (("The repair was put off", "It will be repaired later"), "AWTG-PRTS RE-INSP-50FH"),
}
OUTCOMES = {
    "OPS-CK-OK": ("it passed its test", "it works now"),
    "RTS": ("the aircraft is back in service", "the aircraft flies again"),
    "AWTG-PRTS": ("parts are on the way", "the parts have not come yet"),
    "RE-INSP-50FH": ("look at it again in 50 flight hours", "to be checked after 50 more hours in the air"),
}


def events(rng: random.Random) -> list[tuple[str, str]]:
    """Distinct events: the meaning, and the entry."""
    made: dict[str, str] = {}
    while len(made) < ENTRIES:
        abbreviation, (part, sides, findings) = rng.choice(list(PARTS.items()))
        side, finding = rng.choice(sides.split()), rng.choice(findings.split())
        found, actions = FINDINGS[finding]
        action = rng.choice(actions.split())
        done, outcomes = ACTIONS[action]
        outcome = rng.choice(outcomes.split())
        meaning = f"The {SIDES[side]} {part} {rng.choice(found)}. {rng.choice(done)}; {rng.choice(OUTCOMES[outcome])}."
        made.setdefault(f"{side} {abbreviation} {finding}. {action}, {outcome}.".replace("-", " "), meaning)
    return [(meaning, entry) for entry, meaning in made.items()]


if __name__ == "__main__":
    folder = Path(__file__).parent
    rows = events(random.Random(0))
    for name, some in {"pairs.csv": rows[:PAIRS], "new.csv": rows[PAIRS:]}.items():
        with (folder / name).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([("meaning", "entry"), *some])
    (folder / "log.txt").write_text("".join(f"{entry}\n" for _, entry in rows), encoding="utf-8")
