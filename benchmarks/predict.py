"""What is known of a problem before it is measured: predictions held against find-dbs and H200 records, no GPU.

    python benchmarks/predict.py --find-dbs FOLDER [--results FOLDER]

FOLDER holds ``gfx942130.HIP.fdb.txt.bz2`` (MI300X) and ``gfx90a68.HIP.fdb.txt.bz2`` (MI250X), as MIOpen ships them.

* within: gfx942, five folds of layer families (channels, window, stride, dilation and groups: a family's other batches,
  extents, types and directions are held out with it).  Median factor error of the best time; "is this W slow" (three
  times the slower of F and B, and above 50 µs; siblings are held out too); the share of what slow W lose that is
  reached within 20 % of the tuning cost (``plan.cost_s``), in predicted order, at random, and by measured time.
* across: from gfx90a to gfx942, everything, and only what solvers do that gfx942's db names too; as it is, moved by the
  devices' data sheets (``transfer.py``), and with ten problems of each direction and type, drawn at random, as if
  measured on the target before.  ``the same problem`` is the measured time of gfx90a itself.
* regret: the convolutions of the latest H200 records: rank correlation (Spearman) of predicted and measured regret of
  PyTorch's default.  ``alone``: from the same record, held out by model or group as in ``proposers.py``.  ``all``: from
  all six, where groups hold the problems of every direction together, and a group has the models that have one of its
  layer families; nothing is learned of a problem that has a model or group in common.  ``all, by family``: from all
  six but the layer family.  ``of the direction``: from both records of it alone.  ``by distance``: of ``alone``, by
  the distance to the nearest problem learned from.
  ``two days``: how alike the regrets of the same problems are in ``searched-*`` and in the records of models.
* calibration: of the W of the find-db, and of these six, how many of those with a predicted probability in a range
  lose more than a tenth.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import proposers
from inputs import _FindDb, _frame

from analyzers.analyzer import Settings
from analyzers.measure.plan import cost_s
from analyzers.slow_wrw import backward_weights
from analyzers.times.nearness import coordinates, distance
from analyzers.times.passes import passes_of
from analyzers.times.predictions import LARGE, Predictor
from analyzers.times.transfer import transferred
from logparse.formats.miopen import find_db
from logparse.model import ConvProblem, Problem, problem_from_text

SOURCE, TARGET = {"arch": "gfx90a", "cu_count": "104"}, {"arch": "gfx942", "cu_count": "304"}
FOLDS = 5
CALIBRATED = 10
WITHIN, ACROSS, PRECISION, RECALL, REACHED, COST, RANK = 1.15, 1.3, 0.8, 0.8, 0.9, 0.2, 0.85
_FAMILY = ("spatial", "c", "k", "filter_d", "filter_h", "filter_w", "stride_h", "stride_w", "dilation_h", "groups")


def loaded(path: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The solver times of a find-db, and its convolutions."""
    tables: dict[str, list[Any]] = {"measurements": [], "convs": []}
    for outcome in find_db.read(_FindDb(str(path))):
        for name, table in outcome.tables.items():
            if name in tables:
                tables[name].append(table)
    times = _frame(tables["measurements"], "origin", "kind", "problem", "solution", "status", "time_us")
    convs = _frame(tables["convs"], "problem", "direction", "flops").drop_duplicates("problem")
    return times[(times["status"] == "ok") & (times["time_us"] > 0)], convs


def table_of(times: pd.DataFrame, convs: pd.DataFrame) -> pd.DataFrame:
    """By problem: best time (µs), regret of a W (above its slower sibling), slow, mean time of its solvers, family."""
    given = convs.assign(layer=convs["problem"].str[len("conv F ") :])
    w = backward_weights(passes_of(times.assign(source_id="find-db"), given), Settings()).set_index("problem")
    out = times.groupby("problem")["time_us"].agg(time_us="min", solvers_us="mean", solvers="size")
    out["regret"] = (1 - w["sibling_us"] / w["best_us"]).clip(lower=0)
    out["slow"] = out.index.isin(w.index[w["slow"]])
    out["made"] = [problem_from_text(str(x)) for x in out.index]
    out["direction"] = [x.direction for x in out["made"]]
    out["type"] = [x.in_type for x in out["made"]]
    out["family"] = pd.factorize(pd.Series([family(x) for x in out["made"]]))[0]
    return out


def family(problem: Problem) -> str:
    """The layer without batch, extent, type, layout and direction."""
    assert isinstance(problem, ConvProblem)
    return " ".join(str(getattr(problem, name)) for name in _FAMILY)


# ------------------------------------------------------------------------------------------------ within a device


def held_out(table: pd.DataFrame, seed: int, large: float) -> pd.DataFrame:
    """Predictions by problem, each from the families of the other folds."""
    folds = np.random.default_rng(seed).integers(0, FOLDS, table["family"].max() + 1)[table["family"]]
    made = []
    for fold in range(FOLDS):
        asked = table[folds == fold]
        made.append(predicted(Predictor(table[folds != fold], large=large), asked))
    return pd.concat(made).reindex(table.index)


def predicted(predictor: Predictor, asked: pd.DataFrame) -> pd.DataFrame:
    """``time_us``, ``regret`` and ``risk``; missing where no prediction is made."""
    found = predictor.predict(list(asked["made"]))
    rows = [(x.time_us, x.regret, x.risk) if x else (None, None, None) for x in found]
    return pd.DataFrame(rows, index=asked.index, columns=["time_us", "regret", "risk"], dtype="float64")


def within(table: pd.DataFrame, seed: int) -> dict[str, Any]:
    """The figures of one device."""
    started = time.process_time()
    made = held_out(table, seed, large=1 - 1 / Settings().slow_factor)
    out: dict[str, Any] = {"problems": len(table), "cpu_s": time.process_time() - started}
    out["factor"] = factor(made["time_us"], table["time_us"])
    out |= {f"factor_{x}": factor(made["time_us"], table.loc[table["direction"] == x, "time_us"]) for x in "FBW"}
    w = table[(table["direction"] == "W") & table["regret"].notna()]
    mine = made.loc[w.index]
    flagged, slow = (mine["risk"] > 0.5).to_numpy(), w["slow"].to_numpy()
    out |= {"w": len(w), "slow": int(slow.sum()), "flagged": int(flagged.sum())}
    out |= {"precision": float(slow[flagged].mean()), "recall": float(flagged[slow].mean())}
    large = held_out(table, seed, large=LARGE).loc[w.index, "risk"]
    out["calibration"] = calibration(large.to_numpy(), (w["regret"] > LARGE).to_numpy())
    lost = np.where(slow, w["time_us"] * w["regret"], 0.0)
    cost = np.array([cost_s(us, int(n)) for us, n in zip(w["solvers_us"], w["solvers"], strict=True)])
    orders = {
        "predicted": np.argsort(-(mine["time_us"] * mine["regret"]).to_numpy()),
        "by time": np.argsort(-w["time_us"].to_numpy()),
        "perfect": np.argsort(-lost),
    }
    out["curves"] = {name: curve(order, lost, cost) for name, order in orders.items()}
    draw = np.random.default_rng(seed)
    shuffled = [curve(draw.permutation(len(w)), lost, cost) for _ in range(20)]
    out["curves"]["random"] = [float(x) for x in np.mean(shuffled, axis=0)]
    return out


EDGES = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Probabilities between which predictions are counted together."""


def calibration(risk: Any, happened: Any) -> list[dict[str, float]]:
    """By range of the predicted probability: how many, its mean there, and the share for which it happened."""
    ranges = np.searchsorted(EDGES, risk)
    rows = [
        (int(x.sum()), risk[x].mean(), happened[x].mean()) for i in range(len(EDGES) + 1) if (x := ranges == i).any()
    ]
    return [{"count": n, "predicted": float(p), "happened": float(h)} for n, p, h in rows]


SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)


def curve(order: Any, lost: Any, cost: Any) -> list[float]:
    """The share of what is lost that is reached within each of ``SHARES`` of the cost."""
    reached, spent = np.cumsum(lost[order]) / lost.sum(), np.cumsum(cost[order]) / cost.sum()
    found = np.searchsorted(spent, SHARES, side="right")
    return [float(reached[i - 1]) if i else 0.0 for i in found]


def factor(made: pd.Series, true: pd.Series) -> float:
    """The median of max(a/b, b/a)."""
    apart = np.log(made.reindex(true.index) / true).abs()
    return float(np.exp(apart.median()))


# ------------------------------------------------------------------------------------------------ across devices


def across(source: Mapping[str, pd.DataFrame], target: pd.DataFrame, seed: int) -> dict[str, Any]:
    """From one device's times of several sets of solvers to the best times of another."""
    drawn = target.groupby(["direction", "type"]).sample(CALIBRATED, random_state=seed)
    out: dict[str, Any] = {"measured on both": len(drawn)}
    for name, table in source.items():
        out[name] = _moved(table, target, drawn)
        known = table[~table["family"].isin(set(target["family_text"]))]
        out[f"{name}, other families"] = _moved(known, target, drawn)
        same = table["time_us"].reindex(target.index).dropna()
        out[f"{name}, the same problem"] = {
            "problems": len(same),
            "as it is": factor(same, target.loc[same.index, "time_us"]),
        }
    return out


def _moved(table: pd.DataFrame, target: pd.DataFrame, drawn: pd.DataFrame) -> dict[str, float]:
    """Factors: of the other device's times as they are; moved by the data sheets alone, as ``plan`` does it; and with
    the drawn problems measured on the target, of all others.
    """
    columns = ["time_us", "regret"]
    sheets = transferred(table["time_us"], _pairs(table, drawn.iloc[:0]), SOURCE, TARGET)
    both = _pairs(table, drawn)
    left = table.drop(both.index)
    moved = left.assign(time_us=transferred(left["time_us"], both, SOURCE, TARGET))
    here = drawn.assign(regret=np.nan)
    others = target.drop(drawn.index)
    after = Predictor(pd.concat([here[columns], moved[columns]]))
    return {
        "as it is": factor(predicted(Predictor(table), target)["time_us"], target["time_us"]),
        "data sheets": factor(predicted(Predictor(table.assign(time_us=sheets)), target)["time_us"], target["time_us"]),
        "with pairs": factor(predicted(after, others)["time_us"], others["time_us"]),
        "pairs": len(both),
    }


def _pairs(table: pd.DataFrame, drawn: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"source_us": table["time_us"].reindex(drawn.index), "target_us": drawn["time_us"]}).dropna()


# ------------------------------------------------------------------------------------------------ regret on the H200


REACHES = (0.5, 1.0, 1.5, 2.5)
"""Distances to the nearest problem that was learned from, between which problems are counted together."""


def regrets() -> dict[str, Any]:
    """The regret of PyTorch's default: by record, by distance, on two days, and the probability of a large one."""
    table = measured_regrets()
    found: dict[str, Any] = {}
    alone = []
    for name in proposers.RECORDS:
        own = table[table["record"] == name]
        guess = apart(own, own, "group")
        same = table[table["record"].str[0] == name[0]]
        others = {
            "all": apart(own, table, "models"),
            "all of the direction": apart(own, same, "models"),
            "all, by family": apart(own, table, "family"),
            "all of the direction, by family": apart(own, same, "family"),
        }
        alone.append(guess.join(own, rsuffix="_measured"))
        found[name] = {
            "problems": len(own),
            "groups": len(frozenset.union(*own["group"])),
            "factor": factor(guess["time_us"], own["time_us"]),
            "rank_correlation": rank(guess["regret"], own["regret"]),
        }
        found[name] |= {f"rank_correlation, {x}": rank(y["regret"], own["regret"]) for x, y in others.items()}
    made = pd.concat(alone)
    reach = np.searchsorted(REACHES, made["nearest"])
    groups = [made[reach == i] for i in range(len(REACHES) + 1)]
    rows = [{"problems": len(x), "rank_correlation": rank(x["regret"], x["regret_measured"])} for x in groups]
    days = {name: two_days(table, name) for name in "FBW"}
    risk = calibration(made["risk"].to_numpy(), (made["regret_measured"] > LARGE).to_numpy())
    return {"H200 regret": found, "H200 by distance": rows, "H200 two days": days, "H200 calibration": risk}


def measured_regrets() -> pd.DataFrame:
    """By problem of the six records: ``time_us``, ``regret``, ``made``, ``at``, ``record``, and as sets what it is held
    out by: ``family``, ``group`` (models or group within the record), ``models`` (models and group of all records).
    """
    kinds = proposers.RECORDS.items()
    records = {name: proposers._record(str(proposers.latest(kind)))["results"] for name, kind in kinds}
    parts = []
    for name, results in records.items():
        rows = [(x["problem"], *_of_default({y["solution"]: y["time_us"] for y in x["rows"] if y["status"] == "ok"}))
                for x in results]  # fmt: skip
        part = pd.DataFrame(rows, columns=["problem", "time_us", "regret"]).set_index("problem").dropna()
        groups = proposers.models_of(results)
        parts.append(part.assign(record=name, group=[groups[x] for x in part.index]))
    table = pd.concat(parts)
    table["made"] = [problem_from_text(x) for x in table.index]
    table["at"] = [coordinates(x) for x in table["made"]]
    table["family"] = [frozenset([family(x)]) for x in table["made"]]
    groups = proposers.models_of([x for results in records.values() for x in results])
    of_models = table["record"].str.endswith("models")
    families = dict(zip(table.index, table["family"], strict=True))
    models: dict[frozenset[str], set[str]] = {}
    named: dict[frozenset[str], set[str]] = {x: set() for x in groups.values()}
    for text in table.index[of_models]:
        models.setdefault(families[text], set()).update(groups[text])
    for text in table.index[~of_models]:
        named[groups[text]] |= models.get(families[text], set())
    table["models"] = [groups[x] | named[groups[x]] for x in table.index]
    return table


def _of_default(times: Mapping[str, float]) -> tuple[float | None, float | None]:
    """Its time (µs), and the share of it that the best solution saves."""
    known = times.get("Default")
    return known, known and 1 - min(times.values()) / known


def apart(asked: pd.DataFrame, known: pd.DataFrame, by: str) -> pd.DataFrame:
    """Predictions of ``asked`` from those of ``known`` that share nothing of the column ``by``; ``nearest``: how far
    the nearest of them is.
    """
    parts = []
    for held, rows in asked.groupby(by, sort=False):
        learned = known[known[by].map(held.isdisjoint)]
        near = [min((distance(x, y) for y in learned["at"]), default=math.inf) for x in rows["at"]]
        parts.append(predicted(Predictor(learned), rows).assign(nearest=near))
    return pd.concat(parts).reindex(asked.index)


def rank(one: pd.Series, other: pd.Series) -> float:
    """Rank correlation (Spearman)."""
    return float(one.rank().corr(other.rank()))


def two_days(table: pd.DataFrame, direction: str) -> dict[str, float]:
    """Rank correlation of the regrets of the same problems, measured on two days."""
    path = max(proposers.RESULTS.glob(f"searched-{proposers._KINDS[direction]}-NVIDIA-*.json.gz"))
    then = {x["problem"]: _of_default({name: us for name, status, us, _ in x["rows"] if status == "ok"})[1]
            for x in proposers._record(str(path))["results"]["all"]}  # fmt: skip
    both = pd.DataFrame({"then": then, "now": table["regret"]}).dropna().astype("float64")
    return {"problems": len(both), "rank_correlation": rank(both["then"], both["now"])}


# ------------------------------------------------------------------------------------------------ the program


def main(arguments: Sequence[str] | None = None) -> int:
    """Predict, print, write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--find-dbs", type=Path, required=True)
    parser.add_argument("--results", default=str(proposers.RESULTS))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    times, convs = loaded(options.find_dbs / "gfx942130.HIP.fdb.txt.bz2")
    target = table_of(times, convs)
    target["family_text"] = [family(x) for x in target["made"]]
    others, _ = loaded(options.find_dbs / "gfx90a68.HIP.fdb.txt.bz2")
    here = others[others["solution"].isin(set(times["solution"]))]
    source = {"all solvers": others, "solvers of both": here}
    made: dict[str, Any] = {"record": "predict", "seed": options.seed}
    made["date"] = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    made["within gfx942"] = within(target, options.seed)
    tables = {name: best_of(rows, set(target.index)) for name, rows in source.items()}
    made["gfx90a to gfx942"] = across(tables, target, options.seed)
    made |= regrets()
    print(json.dumps(made, indent=1))
    for line in judged(made):
        print(line)
    path = Path(options.results) / f"predict-find-dbs-{made['date'][:10]}.json"
    path.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    return 0


def best_of(times: pd.DataFrame, wanted: set[str], count: int = 19_000) -> pd.DataFrame:
    """Best times by problem: all that the target has too, and a sample of the others."""
    best = times[times["problem"].str.startswith("conv ")].groupby("problem")["time_us"].min().to_frame()
    shared = best.index.isin(wanted)
    others = best[~shared & best.index.str.contains("spatial=2 ") & best.index.str.contains("type=FP(?:16|32),")]
    chosen = pd.concat([best[shared], others.sample(min(len(others), count - int(shared.sum())), random_state=0)])
    return chosen.assign(regret=np.nan, family=[family(problem_from_text(str(x))) for x in chosen.index])


def judged(made: Mapping[str, Any]) -> list[str]:
    """Each wanted figure, and whether it is met."""
    one, two = made["within gfx942"], made["gfx90a to gfx942"]
    sheets, pairs = (min(two[x][y] for x in ("all solvers", "solvers of both")) for y in ("data sheets", "with pairs"))
    reached = one["curves"]["predicted"][SHARES.index(COST)]
    found = (
        (f"factor within a device {one['factor']:.3f} (at most {WITHIN})", one["factor"] <= WITHIN),
        (f"factor across devices {sheets:.3f} (at most {ACROSS})", sheets <= ACROSS),
        (f"factor across devices, some measured {pairs:.3f} (at most {ACROSS})", pairs <= ACROSS),
        (f"slow W: precision {one['precision']:.2f} (at least {PRECISION})", one["precision"] >= PRECISION),
        (f"slow W: recall {one['recall']:.2f} (at least {RECALL})", one["recall"] >= RECALL),
        (f"reached within {COST:.0%} of the cost: {reached:.1%} (at least {REACHED:.0%})", reached >= REACHED),
        *((f"regret {name}: {y} {x[y]:.2f} (at least {RANK})", x[y] >= RANK)
          for name, x in made["H200 regret"].items() for y in x if y.startswith("rank_correlation")),
    )  # fmt: skip
    return [f"{'met   ' if good else 'MISSED'} {text}" for text, good in found]


if __name__ == "__main__":
    sys.exit(main())
