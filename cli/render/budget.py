"""The budget as a page."""

from cli.money import Books
from cli.render import paint, words
from engine.money.budget import Account
from engine.money.words import money

_BAR = 40


def page(account: Account, books: Books, columns: int) -> str:
    """The figures, a bar of what is used, and the alerts."""
    rows = [
        ("budget", "none" if account.total is None else _usd(account.total)),
        ("spent", _usd(account.spent) + _percent(account.spent, account.total)),
        ("committed", f"{_usd(account.committed)}  {paint.dim('what live runs and machines may still cost at worst')}"),
        ("remaining", _usd(account.remaining)),
        ("for new runs", _usd(account.available)),
        ("now", f"{_usd(account.rate_now)} an hour"),
        ("last 24 hours", f"{_usd(account.spent_day)}, {_usd(account.burn_rate_hourly)} an hour on average"),
        ("used up", _exhausted(account, books.now)),
        *_alerts(account, books),
    ]
    width = max(len(label) for label, _ in rows)
    lines = [f"{paint.dim(label.ljust(width))}  {value}" for label, value in rows]
    if account.total:
        lines += ["", _bar(account, min(_BAR, columns - 2))]
    return "\n".join(lines)


def _alerts(account: Account, books: Books) -> list[tuple[str, str]]:
    if account.total is None:
        return []
    found = []
    for threshold in books.policy.thresholds:
        amount = words.short(money(account.total * threshold // 1000))
        told = books.state.crossed.get(f"{threshold}/{account.total}")
        if told is not None:
            said = f"given at position {told}"
        elif threshold in account.crossed:
            said = "reached; `steno up` gives it"
        else:
            said = "not reached"
        found.append((f"alert at {threshold / 10:g} %", f"{amount}, {said}"))
    return found


def _exhausted(account: Account, now: int) -> str:
    if account.remaining is not None and account.remaining <= 0:
        return paint.bold("now")
    if account.exhausted_at is None:
        return "never, at that rate"
    wait = words.duration(account.exhausted_at - now)
    return f"{words.moment(account.exhausted_at)}, in {wait}, at that rate"


def _bar(account: Account, columns: int) -> str:
    """What is spent, what is committed behind it, and what is left."""
    total = account.total or 1
    spent = min(columns, round(account.spent * columns / total))
    behind = min(columns - spent, round(account.committed * columns / total))
    return "█" * spent + "▒" * behind + "░" * (columns - spent - behind)


def _percent(part: int, whole: int | None) -> str:
    return "" if not whole else paint.dim(f"  {part * 100 / whole:.1f} %")


def _usd(amount: int | None) -> str:
    return "–" if amount is None else words.short(money(amount))
