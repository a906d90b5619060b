"""Programs that must not type-check: mypy must complain on each line marked `# bad`, and on no other."""

import dgsf

app = dgsf.App("typed")


@app.function
def square(x: float) -> float:
    return x * x


@app.function(retries=2)
async def later(x: int) -> int:
    return x


square.remote("three")  # bad
square.remote()  # bad
square.remote(x=1, y=2)  # bad
square.local(None)  # bad
later.remote("x")  # bad
text: str = square.remote(3)  # bad
other: str = later.remote(3)  # bad
square.with_options(tiemout=3)  # bad
square.with_options(timeout="long")  # bad
dgsf.Client().describe(3)  # bad
nothing = dgsf.nothing_of_that_name  # bad


@app.function(attach="far")  # bad
def far() -> None: ...


@app.function(memry="1GiB")  # bad
def wrong() -> None: ...
