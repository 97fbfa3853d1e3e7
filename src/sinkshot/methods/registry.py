"""The registry of methods, filled by `@register`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from array_api_compat import array_namespace

from sinkshot.bank import FeatureBank
from sinkshot.errors import InputError, unknown_name
from sinkshot.task import GramTask, Scores, Task

Function = Callable[..., Scores]


@dataclass(frozen=True)
class Method:
    """A registered method: its function and its properties.

    Calling it checks the task and runs the function.

    Parameters
    ----------
    name : str
        The name on the command line.
    function : callable
        From Task to Scores, with keyword hyper-parameters.
    transductive, preprocess, without_base, reference
        As in `sinkshot.register`.
    random, gram, fused, balanced, features, ordered, open_set, rejects, least_shots, with_base
        As in `sinkshot.register`.
    imbalanced, fixed : mapping
        As in `sinkshot.register`.

    See Also
    --------
    sinkshot.register : Make one.
    get : Find one by its name.

    Examples
    --------
    >>> from sinkshot import METHODS
    >>> METHODS["bms-star"].preprocess, METHODS["bms-star"].fixed
    ('PEMnE', {'prior': 'balanced'})
    """

    name: str
    function: Function
    transductive: bool  # uses all queries together
    preprocess: str  # default chain
    without_base: str  # default chain without base classes
    reference: str
    random: bool = False  # its public form draws random numbers
    gram: bool = False  # also accepts a GramTask: needs only the inner products of an episode's rows
    fused: str = ""  # the entry of `sinkshot.engines.fused_kernels` that runs it in one kernel
    balanced: bool = False  # assumes balanced queries
    features: bool = False  # needs features of the base classes (`Task.base`), not only their mean
    ordered: bool = False  # its public form depends on which support of a class comes first
    open_set: bool = False  # differs from another method only in its unknown score
    rejects: bool = False  # its unknown score is a probability
    least_shots: int = 1  # minimum number of supports per class
    with_base: str = ""  # default chain with features of the base classes, if another
    imbalanced: Mapping[str, Any] = field(default_factory=dict)  # the authors' constants for unequal query sizes
    fixed: Mapping[str, Any] = field(default_factory=dict)  # hyper-parameters that are fixed under this name

    @property
    def chains(self) -> tuple[str, ...]:
        """Default chains: with features of the base classes, with their mean, without; each once."""
        return tuple(dict.fromkeys([self.with_base or self.preprocess, self.preprocess, self.without_base]))

    @property
    def summary(self) -> str:
        """First line of the function's docstring."""
        return (inspect.getdoc(self.function) or "").split("\n")[0]

    @property
    def hyper(self) -> dict[str, Any]:
        """Hyper-parameters and their defaults."""
        parameters = inspect.signature(self.function).parameters.values()
        defaults = {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}
        return {**defaults, **self.fixed}

    def bind(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Fill in defaults; refuse a hyper-parameter the method does not have.

        Parameters
        ----------
        given : mapping
            Hyper-parameters by name.

        Returns
        -------
        dict
            All hyper-parameters.
        """
        known = self.hyper
        for name in given:
            if name not in known:
                raise unknown_name(f"hyper-parameter of {self.name}", name, known)
        return {**known, **given}

    def __call__(self, task: Task | GramTask, **hyper: Any) -> Scores:
        """Check the task's labels and run the method on it."""
        self.check_shots(_fewest_supports(task))
        self.check_base(getattr(task, "base", None))
        return self.function(task, **self.bind(hyper))

    def check_shots(self, shots: int) -> None:
        """Raise an error if a class has fewer supports than the method needs.

        Parameters
        ----------
        shots : int
            Supports of the smallest class.
        """
        if shots < self.least_shots:
            raise InputError(
                f"{self.name} needs at least {self.least_shots} supports per class, but a class has {shots}. "
                f"Give more: --shot {self.least_shots} on the command line, shot={self.least_shots} in a Recipe."
            )

    def check_base(self, base: FeatureBank | None) -> None:
        """Raise an error if the method needs features of the base classes and has none.

        Parameters
        ----------
        base : FeatureBank or None
            The base classes.
        """
        if self.features and base is None:
            raise InputError(
                f"{self.name} needs features of the base classes, not only their mean. Give them: --base FILE on the "
                "command line, base= in evaluate, Task(base=...)."
            )


def _fewest_supports(task: Task | GramTask) -> int:
    """Supports of the smallest class; labels out of range and classes without supports are refused."""
    xp = array_namespace(task.labels)
    if bool(xp.any((task.labels < 0) | (task.labels >= task.way))):
        raise InputError(f"labels of supports must be 0 to {task.way - 1} in a task of {task.way} classes.")
    fewest = task.supports
    for label in range(task.way):
        of_class = xp.sum(xp.astype(task.labels == label, xp.int32), axis=-1)  # [R]
        fewest = min(fewest, int(xp.min(of_class)))
        if fewest == 0:
            raise InputError(f"class {label} of the task has no support in some episode; every class needs one.")
    return fewest


METHODS: dict[str, Method] = {}


def register(
    name: str,
    *,
    transductive: bool,
    preprocess: str,
    reference: str,
    without_base: str | None = None,
    with_base: str = "",
    random: bool = False,
    gram: bool = False,
    fused: str = "",
    balanced: bool = False,
    features: bool = False,
    ordered: bool = False,
    open_set: bool = False,
    rejects: bool = False,
    least_shots: int = 1,
    imbalanced: Mapping[str, Any] | None = None,
    **fixed: Any,
) -> Callable[[Function], Function]:
    """Register a function from Task to Scores as a method.

    Parameters
    ----------
    name : str
        The name on the command line: `--method NAME`.
    transductive : bool
        Whether it uses all queries together.
    preprocess : str
        The default chain, such as "PEMnE".
    reference : str
        Where it was published.
    without_base : str, optional
        The default chain if nothing is known about the base classes.
    with_base : str, optional
        The default chain if features of several base classes are at hand, not only their mean.
    random : bool
        Whether its published form draws random numbers.
    gram : bool
        Whether it also accepts a GramTask: it needs only the inner products of an episode's rows.
    fused : str
        The entry of `sinkshot.engines.fused_kernels` that runs it in one kernel; "" for none.
    balanced : bool
        Whether it assumes balanced queries.
    features : bool
        Whether it needs features of the base classes, not only their mean.
    ordered : bool
        Whether its published form depends on which support of a class comes first.
    open_set : bool
        Whether it differs from another method only in its unknown score.
    rejects : bool
        Whether its unknown score is a probability.
    least_shots : int
        Minimum number of supports per class.
    imbalanced : mapping, optional
        The authors' constants for unequal query sizes.
    **fixed
        Hyper-parameters of the function that are fixed under this name: `bms-star` is `bms` with a prior.

    Returns
    -------
    callable
        A decorator that returns the function unchanged.

    See Also
    --------
    Task : What the function is given.
    Scores : What it returns.

    Examples
    --------
    >>> import numpy as np
    >>> from sinkshot import METHODS, Scores, register
    >>> @register("always-first", transductive=False, preprocess="", reference="an example")
    ... def always_first(task, *, certainty: float = 1.0):
    ...     rest = (1 - certainty) / (task.way - 1)
    ...     shape = (*task.query.shape[:-1], task.way)
    ...     return Scores(np.where(np.arange(task.way) == 0, certainty, np.full(shape, rest)))
    >>> METHODS["always-first"].hyper
    {'certainty': 1.0}
    >>> del METHODS["always-first"]
    """

    def add(function: Function) -> Function:
        if name in METHODS:
            raise InputError(f"a method called {name!r} is registered already.")
        chain = preprocess if without_base is None else without_base
        METHODS[name] = Method(
            name,
            function,
            transductive,
            preprocess,
            chain,
            reference,
            random=random,
            gram=gram,
            fused=fused,
            balanced=balanced,
            features=features,
            ordered=ordered,
            open_set=open_set,
            rejects=rejects,
            least_shots=least_shots,
            with_base=with_base,
            imbalanced=imbalanced or {},
            fixed=fixed,
        )
        return function

    return add


def get(name: str) -> Method:
    """Return a method by its name.

    Parameters
    ----------
    name : str
        A registered name. Before an unknown one raises an error with the nearest names, methods of installed packages
        are looked at (entry point `sinkshot.methods`).

    Returns
    -------
    Method
        The method.

    See Also
    --------
    sinkshot.METHODS : All of them.

    Examples
    --------
    >>> from sinkshot.methods import get
    >>> get("ncm").transductive
    False
    """
    if name not in METHODS:
        from sinkshot.methods.plugins import load_entry_points

        load_entry_points()
    if name not in METHODS:
        advice = "For a method of your own, name its file: --plugin FILE.py; in Python, import it first."
        if "," in name:
            advice = "For several methods, repeat the option: --method A --method B."
        raise unknown_name("method", name, METHODS, advice)
    return METHODS[name]


GROUPS = ("all", "inductive", "transductive")


def group(name: str, protocol: str) -> list[Method]:
    """Return the methods of a group, in the order of registration.

    Methods that differ from another only in their unknown score are included only if there are unknown queries.
    """
    kinds = {"inductive": (False,), "transductive": (True,)}.get(name, (False, True))
    return [m for m in METHODS.values() if m.transductive in kinds and (protocol == "open-set" or not m.open_set)]
