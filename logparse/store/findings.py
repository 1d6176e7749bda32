"""Write and read the findings of the last ``logparse recommend`` for each run, which the view ``findings`` shows."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from logparse.errors import StoreError
from logparse.lazy import pd
from logparse.location import flush, make_folder, replace_file
from logparse.store.columns import conform
from logparse.store.columns import table as arrow_table
from logparse.store.digests import read_bytes, seal_table, unseal_table
from logparse.store.schema import FINDINGS_SCHEMA
from logparse.store.store_files import FINDINGS, StoreFiles


def write_findings(store: StoreFiles, rows: pd.DataFrame, run: str | None = None, runs: Sequence[str] = ()) -> None:
    """Replace the rows of the view ``findings`` for ``run``. The new rows have the columns of ``FINDINGS_SCHEMA``.

    The rows of the other ``runs`` are kept, unless their file is damaged. Without ``run``, all rows are replaced. If
    two processes write at once, the rows of one of them may be lost. Raises OSError.
    """
    rows = rows.reindex(columns=FINDINGS_SCHEMA.names)
    table = pa.Table.from_pandas(rows, FINDINGS_SCHEMA, preserve_index=False)
    if run is not None:
        try:
            earlier = read_findings(store)
        except StoreError as error:
            if isinstance(error.__cause__, OSError) and not isinstance(error.__cause__, FileNotFoundError):
                raise error.__cause__ from None
        else:
            others = frozenset(runs) - {run}
            kept = pa.array([x in others for x in earlier["run"].to_pylist()], pa.bool_())
            table = pa.concat_tables([earlier.filter(kept), table])
    make_folder(store.filesystem, f"{store.root}/findings")
    replace_file(store.filesystem, f"{store.root}/{FINDINGS}", seal_table(table))
    flush(store.filesystem, store.root, folders=[f"{store.root}/findings"])
    if FINDINGS not in store.inventory.others:
        store.take_inventory()


def read_findings(store: StoreFiles) -> pa.Table:
    """Return the rows of the view ``findings``, from the file that ``logparse recommend`` has written.

    Raises StoreError if the file is damaged, or was deleted. Call ``commit_table`` first.
    """
    lost = (
        "lost: the findings of `logparse recommend`, which the view `findings` shows; remedy: run "
        "`logparse recommend` again"
    )
    try:
        table, _ = unseal_table(read_bytes(store.filesystem, f"{store.root}/{FINDINGS}"))
    except FileNotFoundError as error:
        if FINDINGS in store.inventory.others:
            raise StoreError(f"{FINDINGS}: missing; {lost}") from error
        return arrow_table([], FINDINGS_SCHEMA)
    except (OSError, pa.ArrowException) as error:
        why = str(error).partition("\n")[0]
        raise StoreError(f"{FINDINGS}: {why}; {lost}") from error
    return conform(table, FINDINGS_SCHEMA)
