"""How old a state is when it comes: by the wall clock where that can be believed, else by the state before it."""


class StateAges:
    """Ages of states in the order of their cycles. Never too low because a wall clock was set back (NA-09, I3).

    `skew_seconds` is by how much a stamp may lie in the future because two machines' clocks differ. Beyond that the
    wall clock was set back since the stamp, and says nothing; then the age is what the age of the state before and
    the time between the two stamps and between the two arrivals make it. If even the stamps contradict that, it is the
    longest that it can be: a state is made after the one before it, and the first after `started`, since a plain
    subscription delivers nothing older than itself.
    """

    def __init__(self, started: float, skew_seconds: float) -> None:
        self._skew_seconds = skew_seconds
        self._age_seconds = 0.0
        self._came = started
        self._stamp: int | None = None

    def age_seconds(self, stamp_ns: int, now_ns: int, now: float) -> float:
        """The age of the state that comes now. `now` is monotonic seconds, the others nanoseconds of the wall clock."""
        by_wall = (now_ns - stamp_ns) / 1e9
        age = max(0.0, by_wall) if by_wall >= -self._skew_seconds else self._by_order(stamp_ns, now)
        self._age_seconds, self._came, self._stamp = age, now, stamp_ns
        return age

    def _by_order(self, stamp_ns: int, now: float) -> float:
        longest = self._age_seconds + now - self._came
        if self._stamp is None:
            return longest
        between = (stamp_ns - self._stamp) / 1e9
        return longest - between if 0.0 <= between <= longest else longest
