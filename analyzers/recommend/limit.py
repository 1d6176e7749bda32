"""Write what limits a step of the job: its kernels, the host, communication or data loading.

The simulation of the step decides it. Without a simulation, the fraction of time in which the GPU is busy decides.
"""

from __future__ import annotations

from dataclasses import replace

from analyzers.job.gpu_time import COMMUNICATION
from analyzers.job.step.answer import UNPROFILED_HOST
from analyzers.recommend.ranking import Recommendation
from analyzers.recommend.todo import Todo
from analyzers.recommend.whole import LEAST, NEGLIGIBLE, divide_step, whole_of, whole_us
from logparse.model import SURENESS, Gain
from logparse.text import duration, in_one_unit, join_times

DATA = "data loading"
_SLOWED = f"In 11 measured jobs it slowed the host 1.4 to 3.6 times (here taken as {1 / UNPROFILED_HOST:g})"
"""Words about ``UNPROFILED_HOST``. The measurements are in docs/measurement.md."""
_LITTLE = 0.1
"""A saving below this fraction of the step (0 to 1) is called little."""
_TWICE, _NO_TIME = "a host twice as fast", "an infinitely fast host"
_LIMITS = {"host": "the host", "kernels": "its kernels"}
_THEN = {
    "host": "the host would limit it, which needs {} to launch the work",
    "kernels": "its kernels would limit it, which take {}",
}
"""Limit of a step without communication, with the time that it still takes."""


def describe_limit(found: Recommendation) -> str:
    """Write the sentence about the limit of the step, which is for example its kernels, the host, or communication."""
    now, time = found.now, found.gpu_time
    one = f"a {found.word}" if time is None or time.steps else whole_of(found)
    if now is None:
        return f"{one} is not simulated: {found.step}" if found.step else ""
    ceilings, of_host = now.ceilings, now.limit == "host"
    again = f"; {now.read_again}" if now.read_again else ""
    usual = estimate_usual_gain(found)
    if usual is not None:
        fast_host = _shifted_to_trace(Gain(now.now_us, ceilings.fast_host_us), found)
        return _tell_usual(usual, fast_host) + _without_single_gap(found) + again
    traced = whole_us(time) or now.now_us
    differs = abs(now.now_us - traced) > LEAST * traced  # Without the profiler it takes another time than traced.
    profiled = is_as_profiled(found)
    said = [f"{_LIMITS.get(now.limit, now.limit)} {'limit' if now.limit == 'kernels' else 'limits'} {one}"]
    if now.limit == COMMUNICATION and time is not None and time.exposed_us and time.window_us:
        share = f"{join_times(time.exposed_us / (time.steps or 1.0), 'of', time.window_us / (time.steps or 1.0))}"
        said[0] += f": for {share} ({time.exposed_us / time.window_us:.0%}) the GPU only communicates"
        said[0] += "" if time.waiting_us is not None else " or waits for a slower rank"
    # The sentence also has the saving of a step with the best known kernels, with a faster host, and with communication
    # that takes no time.
    ends = (
        ("running the best known kernels", ceilings.best_us),
        (_TWICE, ceilings.half_host_us if of_host else None),
        (_NO_TIME, ceilings.fast_host_us),
    )
    for words, us in ends:
        if us is not None and us < now.now_us * (1 - LEAST):
            saved_us = now.now_us - us
            most = "at most " if of_host and profiled else ""
            share = f"({saved_us / now.now_us:.0%})"
            if words == _NO_TIME and said[-1].startswith(_TWICE):  # The words before name the whole time already.
                said[-1] += f", {words.removesuffix(' host')} one {most}{duration(saved_us)} {share}"
            else:
                said.append(f"{words} saves {most}{join_times(saved_us, 'of', now.now_us)} {share}")
            if words == _NO_TIME:
                said[-1] += _other_idle(found) + (_without_single_gap(found) if of_host else "")
    free_us = ceilings.free_communication_us
    freed = ""
    if free_us < now.now_us * (1 - LEAST):
        saved = duration(now.now_us - free_us)
        if next_ := name_next_limit(found):
            # Else the user wonders why a step saves much less than the time of its communication.
            then = _THEN.get(ceilings.next_limit, f"{next_} would limit it to {{}}").format(duration(free_us))
            freed = f". Without communication, {then}: hiding all of it saves only {saved}"
        else:
            said.append(f"without communication {one} would be {saved} shorter")
    how = "simulated"
    if differs:
        how += f" as {duration(now.now_us)}"
    larger = is_understated(found)
    less = "less is saved" if of_host and len(said) > 1 else "more may be saved" if larger else ""
    if less and now.beside_logs:
        how += f"; writing the libraries' logs slowed the host, so without the logs {less}"
    elif profiled:
        how += "; the profiler slowed the host" + (f", so without the profiler {less}" if less else "")
    elif now.rough:
        how += ", roughly"
    if of_host and round(now.host_factor, 2) != 1:
        how += f", host time × {now.host_factor:.2f}"
    return f"{'; '.join(said)}{freed} ({how}){again}"


def _tell_usual(usual: Gain, as_traced: Gain) -> str:
    """Tell what an infinitely fast host saves: with the host as it usually is without the profiler, and as traced."""
    (saved, now), unit = in_one_unit([usual.saving_us, usual.now_us])
    share, share_of_trace = usual.saving_us / usual.now_us, as_traced.saving_us / as_traced.now_us
    begins = f"a faster host probably saves {'little: ' * (share < _LITTLE)}at most"
    return (
        f"{begins} {saved} of ≈ {now} {unit} ({share:.0%}), but at most "
        f"{join_times(as_traced.saving_us, 'of', as_traced.now_us)} ({share_of_trace:.0%}) if the profiler did not "
        f"slow the host. {_SLOWED}; `logparse capture --trace 2 -- JOB` measures it"
    )


def add_usual(todo: Todo, found: Recommendation) -> Todo:
    """Relate a saving to the time without the profiler (``Todo.usual``), if other savings are parts of that time.

    The saving itself stays as it is: a host that is not slowed makes it no smaller. A saving that was measured in the
    job, and a part of another time than that of the traces, are returned unchanged.
    """
    base, shown, now = estimate_usual_gain(found), todo.shown, found.now
    if base is None or shown is None or now is None or todo.usual is not None or todo.sureness == SURENESS[0]:
        return todo
    if todo.unit == "call" or abs(shown.now_us - now.now_us) > LEAST * now.now_us:
        return todo
    return replace(todo, usual=Gain(base.now_us, max(base.now_us - todo.gained_us, 0.0)))


def as_traced(todo: Todo, found: Recommendation) -> Todo:
    """Let the simulated step of a saving begin at the time of the trace, so that a trace has only one time."""
    if todo.usual is None or todo.step is None:
        return todo
    return replace(todo, step=_shifted_to_trace(todo.step, found))


def _shifted_to_trace(gain: Gain, found: Recommendation) -> Gain:
    traced = whole_us(found.gpu_time)
    if not traced or not is_as_profiled(found) or abs(gain.now_us - traced) > LEAST * traced:
        return gain
    shift = traced - gain.now_us
    ends = (None if x is None else x + shift for x in (gain.low_us, gain.high_us))
    return Gain(traced, gain.then_us + shift, *ends)


def _other_idle(found: Recommendation) -> str:
    """Tell how much idle time an infinitely fast host would leave. Empty if that is little."""
    now, time = found.now, found.gpu_time
    idle = sum(x.us for x in divide_step(time) if x.name == "idle")
    if now is None or not idle or not is_as_profiled(found):
        return ""
    left = idle - (now.now_us - now.ceilings.fast_host_us)
    return f"; {duration(left)} of idle time would remain" if left > LEAST * now.now_us else ""


def _without_single_gap(found: Recommendation) -> str:
    """Tell what a faster host saves without the one long gap, which the thing to do leaves out.

    Empty without such a gap, and if the simulated saving is not larger than that of the thing to do.
    """
    now, time = found.now, found.gpu_time
    remark = next((x for x in found.remarks if x.evidence.waits_for == "host"), None)
    gap = time.gaps.single if time is not None and time.gaps is not None else None
    if now is None or time is None or remark is None or gap is None:
        return ""
    rest_us = (remark.evidence.at_most_us or 0.0) / (time.steps or 1.0)
    if now.now_us - now.ceilings.fast_host_us <= rest_us + LEAST * now.now_us:
        return ""
    saves = f"at most {duration(rest_us)}" if rest_us else "nearly nothing"
    return f"; without one gap of {duration(gap.us)}, which may not happen again, a faster host saves {saves}"


def is_as_profiled(found: Recommendation) -> bool:
    """Tell whether the simulated host takes the time that it took under the profiler, which slows it."""
    now, time = found.now, found.gpu_time
    if now is None or time is None or not time.profiled:
        return False
    traced = whole_us(time) or now.now_us
    return abs(now.now_us - traced) <= LEAST * traced and round(now.host_factor, 2) == 1


def is_understated(found: Recommendation) -> bool:
    """Tell whether a step without communication is simulated too long.

    That step waits for the host, and the profiler or the libraries' logs slowed the simulated host.
    """
    now = found.now
    if now is None or now.limit != COMMUNICATION or now.ceilings.next_limit != "host":
        return False
    return now.beside_logs or is_as_profiled(found)


def bound_gain(step: Gain | None, gain: Gain | None, found: Recommendation) -> float | None:
    """Return the most that the step may gain from faster kernels, µs, if the simulated host was slowed.

    A step that waits for its host gains less than its kernels save. Without the profiler (or the libraries' logs) the
    host may be so fast that the step gains the whole saving. ``gain`` is the time of the kernels now and then. None if
    the simulated host was not slowed, or if the step gains at least half of the saving.
    """
    if gain is None or not name_slowing_limit(step, gain, found) or found.now is None or found.now.limit != "host":
        return None
    return gain.saving_us if found.now.beside_logs or is_as_profiled(found) else None


def estimate_gain(key: str, least_us: float, most_us: float | None, found: Recommendation) -> Gain | None:
    """Estimate the time of a step now and with faster kernels if the host needs half of its traced time.

    ``key`` is the change in ``StepTimes.unslowed``. The gain lies between ``least_us`` (the host is as slow as in the
    trace) and ``most_us`` (nothing waits for the host), in µs. None if ``most_us`` or the host's usual time is unknown.
    """
    if most_us is None or found.step is None or isinstance(found.step, str) or key not in found.step.unslowed:
        return None
    unslowed = found.step.unslowed[key]
    return Gain(unslowed.now_us, unslowed.now_us - min(max(unslowed.saving_us, least_us), most_us))


def estimate_usual_gain(found: Recommendation) -> Gain | None:
    """Estimate the time of a step now and with an infinitely fast host if the host needs half of its traced time.

    The profiler slows the host to about half of its speed (docs/measurement.md). None in these cases:

    * The host's time without the profiler is known.
    * The host does not limit the step.
    * Even the traced step gains nearly nothing from an infinitely fast host. An example is one long gap in a trace.
    * The step gains nearly as much as in the trace.
    """
    now = found.now
    if now is None or now.limit != "host" or now.ceilings.half_host_us is None or not is_as_profiled(found):
        return None
    if now.ceilings.fast_host_us >= now.now_us * (1 - LEAST):
        return None
    usual = Gain(now.ceilings.half_host_us, min(now.ceilings.fast_host_us, now.ceilings.half_host_us))
    return usual if usual.saving_us < (now.now_us - now.ceilings.fast_host_us) * (1 - LEAST) else None


def name_limit(found: Recommendation) -> str:
    """Return what limits the step if it is not its kernels, for example ``the host``. Else it is empty."""
    time, now = found.gpu_time, found.now
    # The simulation of the step decides. Without a simulation, the fraction of time in which the GPU is busy decides.
    if now is not None:
        return "" if now.limit == "kernels" else _LIMITS.get(now.limit, now.limit)
    return "the host" if time is not None and time.waits and time.steps and not time.profiled else ""


def name_next_limit(found: Recommendation) -> str:
    """Return what would limit the step if communication, its limit now, took no time. Empty if nothing else would."""
    now = found.now
    if now is None or now.limit != COMMUNICATION or now.ceilings.next_limit == COMMUNICATION:
        return ""
    return _LIMITS.get(now.ceilings.next_limit, now.ceilings.next_limit)


def name_slowing_limit(step: Gain | None, gain: Gain | None, found: Recommendation) -> str:
    """Return what the step waits for, if it gains less than half of what its kernels save. Else return an empty text.

    ``gain`` is the time of the kernels now and then.
    """
    if step is None or gain is None or found.now is None or found.now.limit == "kernels":
        return ""
    less = step.saving_us < gain.saving_us / 2 and gain.saving_us >= NEGLIGIBLE * step.now_us
    return _LIMITS.get(found.now.limit, found.now.limit) if less else ""


def waits_for_data(found: Recommendation) -> bool:
    """Tell whether the simulated step waits mostly for its data loader."""
    return found.now is not None and found.now.limit == DATA
