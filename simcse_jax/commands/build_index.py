"""simcse-jax search build --embeddings FOLDER --output FOLDER: an index that need not fit into memory."""

from typing import Literal

from simcse_jax.commands.command_line import shorten_warnings
from simcse_jax.commands.verbs import Dtype, Pooler, TruncateDim, verb
from simcse_jax.errors import UserError


@verb
def build_index(
    embeddings: str,
    output: str,
    *,
    model: str | None = None,
    pooler: Pooler = None,
    dtype: Dtype = "float32",
    truncate_dim: TruncateDim = None,
    precision: Literal["float32", "int8", "binary"] | None = None,
    ranges: str | None = None,
    codes: Literal["product", "int8", "binary"] | None = None,
) -> None:
    """Makes an index of embeddings, on a disk or in a bucket, or adds them to one.

    Needs the files that `encode` writes, and LanceDB. Writes the index to the output; the next search opens it.

    Args:
      embeddings: A folder of .parquet or .npy files, or one; gs:// too.
      output: The folder of the index; one that is there is added to.
      model: What made the embeddings, if the files do not say so.
      precision: What the index keeps of an embedding: 4 bytes an element; int8, a byte and a bit; or binary, a bit. By
        default float32, or what it keeps already.
      ranges: For int8: a file with them. By default those of the embeddings.
      codes: LanceDB's codes of vectors in float32, by which rows are found: a byte for four elements; int8, a byte an
        element; or binary, a bit. By default product, or what it has already.

    Raises:
      UserError: for any mistake in the options or the embeddings, or an index of other ones.
    """
    from simcse_jax.index.embedding_files import EmbeddingFiles
    from simcse_jax.index.lance import Wanted
    from simcse_jax.index.lance_build import build, check_folder
    from simcse_jax.vectors.quantization import read_ranges

    folder = check_folder(output, embeddings)
    files = EmbeddingFiles(embeddings)
    wanted = Wanted(precision, None if ranges is None else read_ranges(ranges, files.dimension), codes)
    made_by = files.maker
    if model is not None:  # which is loaded only here
        from simcse_jax.index.identity import check_maker
        from simcse_jax.simcse import SimCSE

        made_by = SimCSE(model, pooler=pooler, dtype=dtype, truncate_dim=truncate_dim).identity()
        if files.maker is not None:
            check_maker(files.parts[0].path, files.maker, made_by)
    elif made_by is None:
        raise UserError(f"{files.name}: does not say which model made the embeddings; give --model")
    with shorten_warnings():
        about, added = build(folder, files, made_by, wanted)
    if not added:
        print(f"{output}: has these {files.count:,} rows already; {about.rows:,} in all, of {made_by.name}")
        return
    numbers = f"{about.last - files.count + 1:,} to {about.last:,}"
    print(f"{output}: {files.count:,} rows added, numbered {numbers}; {about.rows:,} in all, of {made_by.name}")
