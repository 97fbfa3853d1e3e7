"""`sinkshot.label`: from an input and a few labels to a label for everything else."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from sinkshot.encoders import load
from sinkshot.encoders.registry import DEFAULTS, Modality
from sinkshot.errors import InputError
from sinkshot.foreign.folders import is_address
from sinkshot.foreign.limits import admit
from sinkshot.formats import in_parts
from sinkshot.label import answers as files
from sinkshot.label import decisions as reviewed
from sinkshot.label import exports, inputs, page
from sinkshot.label.cache import NAME, FeatureCache
from sinkshot.label.classifier import Stage, by_model, classify
from sinkshot.label.encode import encode
from sinkshot.label.items import Items
from sinkshot.label.results import Labelled

if TYPE_CHECKING:
    from sinkshot.estimators.few_shot import FewShotClassifier

_CELL = 24  # bytes for an item and a class: probabilities, without the item itself, and their order
Tell = Callable[[str], None]
Progress = Callable[[int, int], None]


def label(
    source: Any,
    *,
    labels: str | os.PathLike[str] | None = None,
    text: str | None = None,
    encoder: str | Callable[..., Any] | None = None,
    method: str = "sinkshot",
    unknown: float | None = 0.5,
    next_count: int = 10,
    out: str | os.PathLike[str] | None = None,
    export: tuple[str, ...] = (),
    cache: str | os.PathLike[str] | None = None,
    save: str | os.PathLike[str] | None = None,
    model: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
    tell: Tell | None = None,
    progress: Progress | None = None,
    stage: Stage | None = None,
    **encoder_options: Any,
) -> Labelled:
    """Label images, texts or embeddings from the few labels that some of them have.

    Parameters
    ----------
    source : path or data frame
        A folder of images with class folders; a file of embeddings (`.npz`, `.npy`, `.safetensors`, `.parquet`,
        `.csv`) or of texts (`.csv`, `.jsonl`, `.parquet` with `text`, or `.txt`); a data frame.
    labels : path, optional
        A CSV file `file_name,label` or `id,label`.
    text : str, optional
        The column that holds texts.
    encoder : str or function, optional
        How images or texts become features; see `sinkshot.encoders.load`.
    method : str, default="sinkshot"
        A registered method.
    unknown : float or None, default=0.5
        Items whose probability of belonging to no class is above this number are rejected; None rejects nothing.
    next_count : int, default=10
        How many items to suggest for labelling next.
    out : path, optional
        A folder to write labels.csv, probabilities.parquet, summary.json and report.html to.
    export : tuple of str, optional
        Further forms to write there: "label-studio", "folders", "huggingface".
    cache : path, optional
        The folder in which features are cached; by default beside the input.
    save : path, optional
        A safetensors file that keeps the fitted classifier, for items that come later.
    model : path, optional
        A classifier that `save` wrote: it labels the items, and none needs a label.
    workers, scheduler : int or str, optional
        Encode and label in parts, in this number of processes or on the Dask cluster of a scheduler, for more than one
        machine's memory holds. The object that is returned is then a sample of the items.
    tell, progress, stage : callable, optional
        Called with messages, with the numbers of items encoded and in total, and with the name of each step.
    **encoder_options
        Further options of `sinkshot.encoders.load`.

    Returns
    -------
    Labelled
        A label, a confidence and more for every item; `to_frame` makes a table of it.

    See Also
    --------
    FewShotClassifier : The classifier behind it, for features at hand.

    Examples
    --------
    >>> import numpy as np, pandas as pd, sinkshot
    >>> truth = np.array(["cat", "dog"] * 30)
    >>> table = pd.DataFrame(np.random.default_rng(0).gamma(1 + 4 * (truth[:, None] == np.array(["cat", "dog"] * 4))))
    >>> table["label"] = np.where(np.arange(60) < 8, truth, "")
    >>> found = sinkshot.label(table, unknown=None)
    >>> bool(np.mean(found.to_frame()["label"] == truth) > 0.9)
    True
    """
    tell, stage = tell or (lambda _: None), stage or (lambda _: None)
    folder = None if out is None else Path(out)
    exports.check(tuple(export))
    fitted = None if model is None else _loaded(model)
    if fitted is not None and encoder is None:
        encoder = _encoder_of(fitted)
    given = {"labels": labels, "text": text, "encoder": encoder, "cache": cache, **encoder_options}
    how: dict[str, Any] = {"method": method, "unknown": unknown, "next_count": next_count, "stage": stage}
    if workers is not None or scheduler is not None or _in_parts(source):
        crew: dict[str, Any] = {"workers": workers, "scheduler": scheduler}
        return _label_in_parts(source, given, out, (save, fitted, tuple(export)), crew, tell, progress, how)
    _must_be_local(out)
    items, features, facts = prepare(source, skip=folder, tell=tell, progress=progress, **given)
    items, ruled_out = _with_decisions(items, folder, tell)
    if fitted is not None:
        _must_fit(fitted, facts, features.shape[1])
        answers = by_model(items, features, fitted, unknown)
    elif not items.classes:
        stage("choosing what to label first")
        told = files.summary(items, None, **facts, next=_first(items, features, next_count))
        labelled = Labelled(items, None, told, features)
        if folder is not None:
            _write(folder, labelled, stage)
        return labelled
    else:
        room = _CELL * len(items) * len(items.classes)
        admit(room, features.nbytes, f"{_shown(source)}: {len(items):,} items in {len(items.classes):,} classes")
        answers = classify(items, features, **how)
    answers = reviewed.rule_out(answers, ruled_out, unknown)
    told = files.summary(items, answers, method=method, threshold=unknown, **facts)
    labelled = Labelled(items, answers, told, features)
    _keep(labelled, save, facts, tell)
    if folder is not None:
        _write(folder, labelled, stage)
        for sentence in exports.write(tuple(export), folder, items, answers):
            tell(sentence)
    return labelled


def _with_decisions(items: Items, folder: Path | None, tell: Tell) -> tuple[Items, reviewed.RuledOut]:
    """Return items with the decisions of an earlier review, and which classes it ruled out."""
    if folder is None or not (made := reviewed.read(folder / reviewed.NAME)):
        return items, {}
    tell(f"{folder / reviewed.NAME}: {len(reviewed.standing(made)):,} decisions of a review are used")
    return reviewed.put_onto(items, made)


def _keep(labelled: Labelled, save: str | os.PathLike[str] | None, facts: dict[str, Any], tell: Tell) -> None:
    """Save the classifier, if it is asked for, with what a later run must know."""
    if save is not None and labelled.answers is not None and labelled.answers.model is not None:
        labelled.answers.model.extra_ = facts
        labelled.answers.model.save(save)
        tell(f"the classifier is kept in {save}; label new items with --model {save}")


def _must_be_local(out: str | os.PathLike[str] | None) -> None:
    if out is not None and is_address(out):
        raise InputError(f"{out}: only answers in parts go to an address; give --out a folder.")


def _in_parts(source: Any) -> bool:
    return isinstance(source, str | os.PathLike) and in_parts(source)


def _label_in_parts(
    source: Any,
    given: dict[str, Any],
    out: str | os.PathLike[str] | None,
    also: tuple[str | os.PathLike[str] | None, FewShotClassifier | None, tuple[str, ...]],
    crew: dict[str, Any],
    tell: Tell,
    progress: Progress | None,
    how: dict[str, Any],
) -> Labelled:
    """Label a bank in parts, or images and texts that workers encode into one.

    `also` has where to save the classifier, one that was fitted before, and the exports.
    """
    from sinkshot.label.encode_parts import rows_by_workers
    from sinkshot.label.export_parts import check_exports, write_exports
    from sinkshot.label.in_parts import label_rows, rows_of_bank
    from sinkshot.label.model_parts import label_rows_by_model

    save, fitted, export = also
    check_exports(export, out, _in_parts(source))

    if not isinstance(source, str | os.PathLike):
        raise InputError("--workers and --scheduler take a path, not a data frame.")
    cache = cache_file("." if is_address(source) else source, given.pop("cache")).parent
    if _in_parts(source):
        if given["encoder"] is not None or given["text"] is not None:
            raise InputError("the input holds embeddings, which need no encoder; leave --encoder and --text out.")
        rows, facts = rows_of_bank(os.fsdecode(source), given["labels"]), {"encoder": None}
        tell(f"{_shown(source)}: {rows.description}")
    else:
        skip = None if out is None or is_address(out) else Path(out)
        rows, facts = rows_by_workers(source, cache=cache, skip=skip, tell=tell, progress=progress, **crew, **given)
    told: dict[str, Any] = {"out": None if out is None else os.fsdecode(out), "cache": cache, "facts": facts, **crew}
    if fitted is not None:
        _must_fit(fitted, facts, rows.features.shape[1])
        labelled = label_rows_by_model(rows, fitted, unknown=how["unknown"], stage=how["stage"], **told)
    else:
        labelled = label_rows(rows, **told, **how)
    _keep(labelled, save, facts, tell)
    for sentence in write_exports(export, out, rows):
        tell(sentence)
    return labelled


def _loaded(path: str | os.PathLike[str]) -> FewShotClassifier:
    from sinkshot.estimators.few_shot import FewShotClassifier  # slow to import

    return FewShotClassifier.load(path)


def _encoder_of(fitted: FewShotClassifier) -> str | None:
    """Return the encoder that a classifier names, if it comes with the package: a file must not choose what is run."""
    named = fitted.extra_.get("encoder")
    if named is None or named in DEFAULTS.values():
        return None if named is None else str(named)
    raise InputError(f"the classifier was fitted on features of {named!s:.80}; give that encoder again with --encoder.")


def _must_fit(fitted: FewShotClassifier, facts: dict[str, Any], width: int) -> None:
    """Refuse features of an encoder other than the one that the classifier was fitted on."""
    before, now = fitted.extra_.get("encoder_digest"), facts.get("encoder_digest")
    if before != now:
        raise InputError(
            f"the classifier was fitted on features of {fitted.extra_.get('encoder') or 'embeddings'}, but these "
            f"are features of {facts.get('encoder') or 'embeddings'}; use the same encoder."
        )
    if width != fitted.n_features_in_:
        raise InputError(f"the classifier takes {fitted.n_features_in_} features, but the items have {width}.")


def prepare(
    source: Any,
    *,
    labels: str | os.PathLike[str] | None = None,
    text: str | None = None,
    encoder: str | Callable[..., Any] | None = None,
    skip: Path | None = None,
    cache: str | os.PathLike[str] | None = None,
    tell: Tell | None = None,
    progress: Progress | None = None,
    **encoder_options: Any,
) -> tuple[Items, NDArray[Any], dict[str, Any]]:
    """Read an input and encode it: the items that can be labelled, their features, and facts for the summary.

    Parameters are those of `label`; `skip` is a folder of results inside a folder of images.
    """
    tell = tell or (lambda _: None)
    items = inputs.read(source, labels=labels, text=text, skip=skip)
    tell(f"{_shown(source)}: {items.description}")
    for notice in (*items.notices, *items.names_alike):
        tell(notice)
    return features_of(items, source, encoder, cache, tell, progress, encoder_options)


def features_of(
    items: Items,
    source: Any,
    encoder: str | Callable[..., Any] | None,
    cache: str | os.PathLike[str] | None,
    tell: Tell,
    progress: Progress | None,
    options: dict[str, Any],
) -> tuple[Items, NDArray[Any], dict[str, Any]]:
    """Return the items that could be encoded, their features, and facts for the summary."""
    if items.features is not None:
        if encoder is not None:
            raise InputError("the input holds embeddings, which need no encoder; leave --encoder out.")
        return items, items.features, {"encoder": None}
    modality: Modality = "image" if items.kind == "images" else "text"
    chosen = load(encoder, modality, **options)
    tell(f"encoder: {chosen.name}, {chosen.width:,} features" + (f"; {chosen.note}" if chosen.note else ""))
    with FeatureCache(cache_file(source, cache), chosen.digest, chosen.width) as kept:
        rest, features = encode(items, chosen, kept, progress)
    return rest, features, {"encoder": chosen.name, "encoder_digest": chosen.digest}


def cache_file(source: Any, cache: str | os.PathLike[str] | None) -> Path:
    """Return where features of an input are cached: by default in a hidden folder in or beside it."""
    if cache is not None:
        return Path(cache) / NAME
    if not isinstance(source, str | os.PathLike):
        return Path(".sinkshot") / NAME
    path = Path(source)
    return (path if path.is_dir() else path.parent) / ".sinkshot" / NAME


def _first(items: Items, features: NDArray[Any], count: int) -> list[str]:
    """Names of the items to label first where none has a label."""
    from sinkshot.selection import first_rows

    return [items.names[row] for row in first_rows(features, min(count, len(items)))]


def _write(folder: Path, labelled: Labelled, stage: Stage) -> None:
    """Write the files and the page."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"the folder {folder} cannot be created: {error.strerror or error}.") from None
    stage("writing labels.csv")
    files.write(folder, labelled.items, labelled.answers, labelled.summary)
    stage("writing report.html")
    page.write(folder / "report.html", labelled)


def _shown(source: Any) -> str:
    return str(source) if isinstance(source, str | os.PathLike) else f"the {type(source).__name__}"


__all__ = ["Labelled", "label"]
setattr(sys.modules["sinkshot"], "label", label)  # noqa: B010  importing the package had put itself there
