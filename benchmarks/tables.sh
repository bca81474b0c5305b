#!/usr/bin/env bash
# The papers' tables and figures at a size that fits a laptop: 150 steps from a small language model; see docs/background/results/.
# Needs the MiniLM package, SentEval's folder (with STS and SNLI) and sentences, one a line. Run again after a stop, it resumes.
set -euo pipefail
if [ $# -lt 3 ]; then
  echo "usage: benchmarks/tables.sh SENTEVAL_FOLDER WIKI_SENTENCES.txt OUTPUT_FOLDER [TABLE …]" >&2
  exit 2
fi
senteval=$1 wiki=$2 output=$3
shift 3
tables=${*:-language_model learning_rates simcse_table3 simcse_tableD1 simcse_pp_table1 simcse_pp_table2 simcse_pp_table3
  simcse_pp_table5 simcse_tableC1 simcse_figure2 simcse_table6 simcse_tableD2 simcse_pp_table4 generator systems ct_parts diffcse_readings
  isotropy_dynamics rank_bottleneck}
mkdir -p "$output" data

start=(--config.model.init_from="$output/language_model" --config.train.dtype=bfloat16 --config.eval.data="$senteval")
short=(--config.train.max_steps=150 --config.train.batch_size=64 --config.train.log_every=50 --config.eval.every=50)
unsupervised=(--config.data.train="$wiki")
supervised=(--config.data.train="$output/snli_neutral.csv" --config.train.learning_rate=5e-5)
one_task=(--config.eval.tasks=STSBenchmark)
# Without them, all similarity sets are scored that SENTEVAL has; the tables name those that are missing.

write() { cat > "$1.part" && mv "$1.part" "$1"; } # whole, or not at all after a stop
sentences() {
  [ -e data/sentences.txt ] || head -n 9600 "$wiki" | write data/sentences.txt
  head -n 9600 "$wiki" | cmp -s - data/sentences.txt || {
    echo "data/sentences.txt: not the first lines of $wiki; remove it, data/documents.txt and data/negated.csv" >&2
    exit 2
  }
}

sweep() { # file (with argument), fields
  local file=$1
  shift
  simcse-jax sweep --config "ablations/$file" --workdir "$output/${file//:/_}" \
    "${start[@]}" "${short[@]}" "$@"
}

for table in $tables; do
  case $table in
    language_model)
      python -m simcse_jax.main --config configs/language_model.py --workdir "$output/language_model" \
        "${unsupervised[@]}" --config.eval.data="$senteval" "${one_task[@]}" --config.analysis.every=280
      simcse-jax build-data nli_neutral --source "$senteval/SNLI" --split dev test \
        --output "$output/snli_neutral.csv"
      # The names that rows of C.1 and SimCSE++ 4 have for the sentences that flow and whitening are fit on.
      [ -e data/wiki1m_for_simcse.txt ] || ln -s "$(realpath "$wiki")" data/wiki1m_for_simcse.txt
      [ -e data/nli_sentences.txt ] || simcse-jax build-data nli_sentences --source "$senteval/SNLI" \
        --split dev test --output data/nli_sentences.txt ;;
    learning_rates) # three rates an objective, one seed
      rates="batch 64 at 1e-05,batch 64 at 3e-05,batch 64 at 5e-05"
      # The rates in docs/background/results/ were found with these readings of SimCSE++; its recipe has the others now.
      plus_plus=(--config.objective.info_nce.weight=0.0 --config.objective.off_dropout.weight=1.0
        --config.objective.dimension_wise.weight=0.1 --config.objective.off_dropout.reading=paper
        --config.objective.dimension_wise.reading=released)
      for objective in simcse plus_plus supervised; do
        fields=("${unsupervised[@]}") grid=simcse_grid:unsup
        [ $objective != plus_plus ] || fields+=("${plus_plus[@]}")
        [ $objective != supervised ] || { fields=("${supervised[@]}") grid=simcse_grid:sup; }
        simcse-jax sweep --config ablations/$grid --workdir "$output/learning_rates_$objective" \
          "${start[@]}" "${short[@]}" "${one_task[@]}" "${fields[@]}" --config.sweep.seeds=42 \
          --config.sweep.only="$rates" --config.sweep.baseline="batch 64 at 3e-05"
      done ;;
    simcse_figure2) # draw it: simcse-jax geometry --runs OUTPUT/simcse_figure2/*/seed42 --output FOLDER
      sweep $table "${one_task[@]}" "${unsupervised[@]}" --config.sweep.seeds=42 ;;
    simcse_table3 | simcse_table6) sweep $table "${one_task[@]}" "${unsupervised[@]}" ;;
    simcse_tableD1 | simcse_tableD2) sweep $table "${one_task[@]}" "${supervised[@]}" ;;
    simcse_pp_table1) # less noise takes ten masks, and so ten times the memory, and of one seed half an hour a row
      sweep $table "${unsupervised[@]}" --config.sweep.seeds=42 --config.parallel.chunk_size=16 \
        --config.sweep.only="SimCSE,positives - noise,negatives - noise"
      sweep $table "${unsupervised[@]}" --config.sweep.only="SimCSE,positives + noise of variance 0.1,\
positives + noise of deviation 0.1,negatives + noise of variance 0.1,negatives + noise of deviation 0.1"
      sweep $table "${unsupervised[@]}" --config.sweep.run=False ;;
    simcse_pp_table2) sweep $table "${unsupervised[@]}" ;;
    simcse_pp_table3) sweep $table "${unsupervised[@]}" \
      --config.sweep.only="SimCSE,off-dropout,dimension-wise,SimCSE++" ;;
    simcse_pp_table5) # one seed a point: the line of m in both readings of m, those of λ and τ in both of the loss
      centres="m-paper dcl-paper centre,m-paper dcl-released centre,m-released dcl-released centre,"
      centres+="m-released dcl-paper centre"
      rows=$centres
      for m in paper released; do
        for value in 0.5 0.8 1 1.1 1.2; do rows+=",m-$m dcl-released m $value"; done
      done
      for dcl in paper released; do
        for value in 0.02 0.05 0.2 0.5 1; do rows+=",m-paper dcl-$dcl lambda $value"; done
        for value in 1 2 10 20 50; do rows+=",m-paper dcl-$dcl tau $value"; done
      done
      # Then three seeds of the centres and of what was best of each line here (of the printed τ the centre was).
      best="$centres,m-paper dcl-paper lambda 0.02,m-paper dcl-released lambda 1,m-paper dcl-released tau 1,"
      best+="m-paper dcl-released m 1.2,m-released dcl-released m 0.8"
      table_5() { sweep $table "${one_task[@]}" "${unsupervised[@]}" "$@"; }
      table_5 --config.sweep.seeds=42 --config.sweep.only="$rows"
      table_5 --config.sweep.only="$best"
      table_5 --config.sweep.run=False --config.sweep.only="$rows" ;;
    simcse_pp_table4) sweep $table "${unsupervised[@]}" --config.sweep.only="none,whitening on wiki,\
dimension-wise on wiki,flow on NLI,whitening on NLI,whitening on NLI (layer 1),dimension-wise on NLI,SimCSE,\
SimCSE + whitening,SimCSE + flow" ;;
    generator) # of DiffCSE: the language model, trained on
      python -m simcse_jax.main --config configs/language_model.py --workdir "$output/generator" "${unsupervised[@]}" \
        --config.model.init_from="$output/language_model" --config.train.max_steps=420 --config.eval.every=420 \
        --config.eval.data="$senteval" "${one_task[@]}"
      ln -sfn "$(realpath "$output/generator")" data/generator ;;
    systems) # one epoch of 9,600 sentences each, all four rates, of which docs/background/results/ has three each
      sentences
      [ -e data/documents.txt ] || awk '{ lines = lines $0 "\n"; words += NF }
        words >= 512 { printf "%s\n", lines; lines = ""; words = 0 }' data/sentences.txt | write data/documents.txt
      [ -e data/negated.csv ] || { # SNCSE's negations, by one rule in place of its authors' parser
        echo sentence,negation
        sed -E 'h
          s/\b(is|are|was|were|has|have|had|can|could|will|would|may|might|must|should|does|did)\b/& not/; t pair
          s/^/Not /; :pair
          G; s/"/""/g; s/(.*)\n(.*)/"\2","\1"/' data/sentences.txt
      } | write data/negated.csv
      systems() {
        simcse-jax sweep --config ablations/systems --workdir "$output/systems" "${start[@]}" \
          --config.data.train=data/sentences.txt --config.train.epochs=1 --config.train.log_every=50 \
          --config.sweep.seeds=42 --config.sweep.metrics=stsb_dev,anisotropy,steps,training_minutes "$@"
      }
      # RankCSE's teachers first
      systems --config.sweep.only="SimCSE at 1e-04,DiffCSE at 1e-04" --config.sweep.baseline="SimCSE at 1e-04"
      ln -sfn "$(realpath "$output/systems/DiffCSE at 1e-04/seed42")" data/teacher_diffcse
      ln -sfn "$(realpath "$output/systems/SimCSE at 1e-04/seed42")" data/teacher_simcse
      systems ;;
    ct_parts) # the same sentences; the rate is that of both there
      sentences
      simcse-jax sweep --config ablations/ct_parts --workdir "$output/$table" "${start[@]}" \
        --config.data.train=data/sentences.txt --config.train.epochs=1 --config.train.log_every=50 ;;
    diffcse_readings) # the masking rate with one seed; more seeds of the best with --config.sweep.only and sweep.seeds
      sentences
      simcse-jax sweep --config "ablations/$table" --workdir "$output/$table" "${start[@]}" --config.sweep.seeds=42 \
        --config.data.train=data/sentences.txt --config.train.epochs=1 --config.train.log_every=50 ;;
    isotropy_dynamics) # one epoch of SNLI's pairs each; draw it: simcse-jax analyze --runs OUTPUT/isotropy_*/*/seed42
      [ -e "$output/snli_pairs.csv" ] || simcse-jax build-data nli_pairs --source "$senteval/SNLI" --split dev test \
        --output "$output/snli_pairs.csv"
      dynamics() { # table, rows, the first of them, steps of an epoch, steps between two measurements
        simcse-jax sweep --config "ablations/isotropy_$1" --workdir "$output/isotropy_$1" "${start[@]}" "${one_task[@]}" \
          --config.data.train="$output/snli_pairs.csv" --config.checkpoint.keep_every=0 --config.sweep.seeds=42 \
          --config.sweep.only="$2" --config.sweep.baseline="$3" --config.eval.every="$4" --config.analysis.every="$5"
      }
      dynamics temperature 0.025,0.05,0.1 0.05 104 8
      dynamics temperature_wide 0.001,0.01,1 0.001 104 8
      dynamics pooling cls,max cls 104 8
      dynamics batch_size 16 16 418 22
      dynamics batch_size 256 256 26 2 ;;
    rank_bottleneck) # in float32, as the page
      simcse-jax sweep --config ablations/$table --workdir "$output/$table" "${start[@]}" "${unsupervised[@]}" \
        "${one_task[@]}" --config.train.dtype=float32 --config.train.batch_size=64 --config.train.log_every=25 \
        --config.sweep.seeds=42,43 ;;
    simcse_tableC1) # trains nothing; the flow alone has a seed
      table_c1() { simcse-jax sweep --config ablations/$table --workdir "$output/$table" "${start[@]}" "$@"; }
      table_c1 --config.sweep.seeds=42
      table_c1 --config.sweep.only="none,flow (NLI),flow (target)"
      table_c1 --config.sweep.run=False ;;
    *) echo "no table $table" >&2; exit 2 ;;
  esac
done
