import threading

import numpy as np
import pyarrow.parquet
import pytest
from support.embedding_folders import begin, encoder_of

from simcse_jax import SimCSE
from simcse_jax.bulk.embeddings import encoder as encoder_module
from simcse_jax.bulk.embeddings.blocks import make_block
from simcse_jax.bulk.embeddings.plan import blocks_of
from simcse_jax.bulk.embeddings.quantized import quantization_of
from simcse_jax.data.sentences import SentenceFile
from simcse_jax.encoding.quantization import quantize, ranges_of, read_ranges
from simcse_jax.errors import UserError


def test_all_blocks_have_the_ranges_of_the_first_rows(sources, tiny_bert, tmp_path, monkeypatch):
    monkeypatch.setattr(encoder_module, "CALIBRATED", 22)  # rows of both sources
    folder, encoder = tmp_path / "out", encoder_of(tiny_bert, output_dtype="int8")
    plan = begin(folder, encoder, *sources)
    blocks = blocks_of(folder, plan)
    makers = [threading.Thread(target=make_block, args=(folder, plan, block, encoder)) for block in blocks]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    texts = [text for source in sources for text in SentenceFile(source)]
    expected = SimCSE(str(tiny_bert)).encode(texts)
    ranges = read_ranges(str(folder), 32)
    np.testing.assert_allclose(ranges, ranges_of(expected[:22]), atol=1e-5)
    for block in blocks:
        np.testing.assert_array_equal(read_ranges(str(folder / block.file)), ranges)
        found = np.array(pyarrow.parquet.read_table(folder / block.file)["embedding"].to_pylist())
        codes = quantize(expected[block.row : block.row + block.rows], "int8", ranges)
        assert np.abs(found - codes).max() <= 1


def test_given_ranges_are_part_of_the_plan(sources, tiny_bert, tmp_path):
    given = np.stack([np.full(32, -2, np.float32), np.full(32, 2, np.float32)])
    encoder = encoder_of(tiny_bert, output_dtype="uint8", ranges=given)
    plan = begin(tmp_path / "out", encoder, *sources)
    np.testing.assert_array_equal(quantization_of(tmp_path / "out", plan, encoder).ranges, given)
    other = encoder_of(tiny_bert, output_dtype="uint8", ranges=given * 2)
    with pytest.raises(UserError, match="--ranges was"):
        begin(tmp_path / "out", other, *sources)
    with pytest.raises(UserError, match=r"--ranges: of shape \(2, 31\)"):
        encoder_of(tiny_bert, output_dtype="uint8", ranges=given[:, 1:])


def test_bits_have_no_ranges_and_numbers_nothing(sources, tiny_bert, tmp_path):
    encoder = encoder_of(tiny_bert, output_dtype="binary")
    plan = begin(tmp_path / "bits", encoder, *sources)
    found = quantization_of(tmp_path / "bits", plan, encoder)
    assert (found.precision, found.dimension, found.ranges) == ("binary", 32, None)
    path = tmp_path / "bits" / ".quantization.json"
    path.write_text(path.read_text().replace("binary", "ubinary"))
    with pytest.raises(UserError, match=r"/\.quantization\.json: was changed"):
        quantization_of(tmp_path / "bits", plan, encoder)
    encoder = encoder_of(tiny_bert)
    plan = begin(tmp_path / "numbers", encoder, *sources)
    assert quantization_of(tmp_path / "numbers", plan, encoder) is None
