"""Every error of operator text: its type, its place and all of its words."""

# ruff: noqa: E501
from __future__ import annotations

import re

import pytest
from diptych.algo.errors import OpError, ParseError
from diptych.algo.location import Loc
from diptych.algo.tensor_expr.parse import parse
from hypothesis import given, settings
from hypothesis import strategies as st

# Operator texts; under the wrong line stands a caret, and after it the whole error.
CASES = """
y[i] = expp(x[i])
       ^ ParseError: unknown function 'expp'; did you mean 'exp'?

let a = x[i]
let a = x[i] + 1
    ^ ParseError: a is defined by two let lines; rename one
y[i] = a

let a = x[i]
    ^ ParseError: a stands for an expression here and is a tensor elsewhere; rename one
y[i] = a + a[i]

let a = x[i]
    ^ ParseError: a stands for an expression here and is an index elsewhere; rename one
y[i] = sum(x[i] + a, over=a)

size a
let a = x[i]
    ^ ParseError: a stands for an expression here and is a size elsewhere; rename one
y[i] = a

let a x[i]
      ^ ParseError: expected '=' and what a stands for, got 'x'
y[i] = a

y[i] = x[i
        ^ ParseError: '[' is never closed

y[i] = x[i)]
          ^ ParseError: ')' does not close the '[' opened at column 9

y[i] = x[i]]
           ^ ParseError: ']' closes nothing

y[i] = x[i] $ 2
            ^ ParseError: unknown character '$'

y[i] = x[i] ^ 2
            ^ ParseError: unknown character '^'; write a ** b for powers, != for exclusive or

y[i] = !x[i]
       ^ ParseError: unknown character '!'; write ~ for not, != for unequal

y[i] = x.shape[i]
         ^ ParseError: 'shape' is no boundary that x.shape[...] could have; known are edge, zero, reflect, wrap, fill

y[i] = x.edges[i]
         ^ ParseError: 'edges' is no boundary that x.edges[...] could have; did you mean 'edge'?

y[i] = x. [i]
          ^ ParseError: expected a boundary, as in x.edge[...], got '['

y[i] = x.edge + 1
              ^ ParseError: expected '[' after x.edge, got '+'

y[i] = x.fill[i]
             ^ ParseError: expected '(' and a number: fill(1.5), got '['

y[i] = x.fill(a)[i]
              ^ ParseError: fill takes a number; choose other values by where(c, a, b)

I[r] = argmax(A[r,k,l])
       ^ OpError: argmax gives one index and reduces over k, l; name the one with over=, and reduce over the others inside

I[r] = argmin(A[r,k], dtype=i32)
       ^ OpError: argmin gives an index, an i64; to have another type cast it: i32(argmin(...))

I[r] argmax= A[r,k]
     ^ ParseError: expected '=' or one of += *= max= min= after I[...], got 'argmax'

y[i] = x[i] +
             ^ ParseError: expected an expression, got the end of the text

y[i] x[i]
     ^ ParseError: expected '=' or one of += *= max= min= after y[...], got 'x'

y[i] -= x[i]
     ^ ParseError: -= is no reduction; write += -(...)

y(i) = x[i]
     ^ ParseError: tensors are indexed with brackets; write y[...] = ...

y[i] == x[i]
     ^ ParseError: expected = to define a tensor, got '=='

y[i] = x[i] y[j]
            ^ ParseError: expected an operator or the end of the line, got 'y'

y[i] = x[i,k]
           ^ OpError: index k is not on the left and is used outside any reducer; put it on the left, or reduce over it: sum(...)

y[i] = sum(x[i])
       ^ OpError: sum reduces over nothing: its indices are on the left or belong to another reducer; name its index with over=

y[i] = sum(x[i,k], over=(l,))
               ^ OpError: index k is not on the left, and sum reduces over (l) only; add it to over=

y[i]=sum(x[i,k], over=(k,k))
                         ^ ParseError: index k is listed twice in over=

y[i] = sum(x[k,l], over=(k,))
               ^ OpError: index l is not on the left, and sum reduces over (k) only; add it to over=

y[i]=x[i]
y[i]=x[i]
z[i]=y[i]
y[0]=1
^ OpError: y is defined twice; the equations of one tensor stand together

x[i]=x[i]+1
^ OpError: x reads the element that it defines; to accumulate write +=

y[i]=z[i]; z[i]=x[i]
     ^ OpError: z is read here but defined by no equation above and is no input

y[i] = x[i] + x[i,i]
              ^ OpError: x has 2 indices here and 1 index elsewhere

y[i] = x[y2[i]]*i; i[k]=x[k]
  ^ OpError: i is both an index and a tensor; rename one

y[b[i]] = x[i]
  ^ OpError: the left side of an equation with = depends on data (b); several instances may write one element: use +=

y[i] = x[i] where k in 0:3
                  ^ OpError: index k has a range but is never used

y[i] = x[i] where i in 0:3, i in 0:4
  ^ OpError: index i has two ranges

y[i]=sum(x[i,k],over=k in 0:3) where k in 0:4
             ^ OpError: index k has two ranges

y[i]=sum(a[k])*sum(b[l]) where k<l
           ^ OpError: no reduction binds all indices of this condition: k, l; give it to the reducer as where=

y[i] = exp*x[i]
       ^ ParseError: exp is a function; write exp(...)

f(x)->y: y[i]=x[i]*N
                   ^ ParseError: unknown name 'N', which is no index, size or scalar here; list it in the header, or if it is a size add a line: size N

f(x,lr)->y:
 y[i]=x[i]*lrr
           ^ ParseError: unknown name 'lrr', which is no index, size or scalar here; did you mean 'lr'?

f(x,x): y[i]=x[i]
    ^ ParseError: parameter x is listed twice

f(x: f23[N]):
     ^ ParseError: unknown element type 'f23'; did you mean 'f32'?
 y[i]=x[i]

f(x: 3): y[i]=x[i]
     ^ ParseError: expected the type of x, such as f32[M, K], got '3'

f(x)->z:
      ^ ParseError: no equation defines z; defined are y
 y[i]=x[i]

f(x)->y
       ^ ParseError: expected ':' after the header, got the end of the line
 y[i]=x[i]

y[i]=x[i:3]
        ^ ParseError: slices are not part of operator text; write an index

y[i]=x[:]
       ^ ParseError: slices are not part of operator text; write an index

y[i]=exp(x[i],2)
     ^ ParseError: exp takes 1 argument, got 2

y[i]=where(x[i],1)
     ^ ParseError: where takes 3 arguments, got 2

y[i]=max()
     ^ ParseError: max takes 2 arguments, got 0

y[i]=exp(x[i],over=k)
              ^ ParseError: over= belongs to a reduction, which exp is not

y[i]=sum(x[i,k],ovr=k)
                ^ ParseError: unknown option 'ovr='; reducers take over=, where= and dtype=

y[i]=sum(x[i,k],dtype=f31)
                      ^ ParseError: unknown element type 'f31'; did you mean 'f32'?

y[i]=x[i] and x[i]
          ^ ParseError: write & instead of 'and'

y[i]= not x[i]
      ^ ParseError: write ~ instead of 'not'

y[i]=f32(x[i],1)
     ^ ParseError: f32 takes 1 argument, got 2

y[i]=x[i] where
               ^ ParseError: expected an expression, got the end of the text

where[i]=x[i]
^ ParseError: where is a word of the language and cannot name a tensor

y[i]=in
     ^ ParseError: expected an expression, got 'in'

H: [B]; y[i]=x[i]
^ ParseError: no equation defines H; defined are y

y: [B]; y: [B]; y[i]=x[i]
        ^ ParseError: the shape of y is declared twice

y[i] += y[i]
^ OpError: y is read while it is accumulated; accumulate into a new tensor

f(y): y[i]=x[i]
      ^ OpError: y is an input and cannot be assigned; use a new name

f(x): x[i]=x[i]
      ^ OpError: x is an input and cannot be assigned; use a new name

y[i] = x[i]*x
            ^ ParseError: x is read without its 1 index; write x[...]

f(x: [n]) -> y: y[n]=x[n]
                  ^ OpError: n is an index here and a size elsewhere; rename one

y[i]=3x[i]
      ^ ParseError: expected an operator or the end of the line, got 'x'

y[i]=sum(a[i,k]*max(b[k],over=k))
             ^ OpError: max reduces over k, which a reducer around it binds already; use another name

y[i] = sum(x[i], over=i)
  ^ OpError: sum reduces over i, which the equation itself runs over; use another name

y[i]=1_0.5_0 + 0x + 1e
          ^ ParseError: expected an operator or the end of the line, got '_0'

-> 3
^ ParseError: expected a tensor, got '->'

y[i]=x[i]+1 not
            ^ ParseError: expected an operator or the end of the line, got 'not'

f(x)->y: y[i]=lr*x[i]
              ^ ParseError: unknown name 'lr', which is no index, size or scalar here; list it in the header, or if it is a size add a line: size lr

y[i]=sum(x[i,k]) y[j]=3
                 ^ ParseError: expected an operator or the end of the line, got 'y'

f(x: f32[2.5]): y[i]=x[i]
         ^ ParseError: expected a whole number, got 2.5

y[i]=sum(x[i,k], sum=3)
                 ^ ParseError: unknown option 'sum='; reducers take over=, where= and dtype=

y[i]=sum(x[i,k], over=k, 3)
                         ^ ParseError: expected an option such as over=, after the first option, got '3'

y[i]=tensor(x)[i]
     ^ ParseError: unknown function 'tensor'; tensors are read with brackets: tensor[...]

K[i]=sum(x[i,k])*K
                 ^ ParseError: K is read without its 1 index; write K[...]
"""
_CARET = re.compile(r"( *\^) (\w+): (.*)")


@pytest.mark.parametrize("case", CASES.strip().split("\n\n"))
def test_error(case: str) -> None:
    lines = case.split("\n")
    (at,) = [n for n, line in enumerate(lines) if _CARET.fullmatch(line)]
    caret, kind, message = _CARET.fullmatch(lines.pop(at)).groups()  # type: ignore[union-attr]
    with pytest.raises(OpError) as caught:
        parse("\n".join(lines))
    assert str(caught.value) == f"<text>:{at}: {message}\n    {lines[at - 1]}\n    {caret}"
    assert type(caught.value).__name__ == kind


@pytest.mark.parametrize("text", ["", "\n", "  # nothing\n"])
def test_empty_text(text: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(text)
    line = 1 + text.count("\n")
    assert str(caught.value) == (f"<text>:{line}: the operator text is empty; expected T[i] = ...")


def test_an_error_in_a_file_names_the_line_of_the_file() -> None:
    with pytest.raises(ParseError) as caught:
        parse("\n    y[i] = x[i] +\n", loc=Loc("/somewhere/mm.py", 7))
    assert str(caught.value) == (
        "mm.py:8: expected an expression, got the end of the line\n"
        "        y[i] = x[i] +\n"
        "                     ^"
    )


def test_what_returns_asks_for_must_be_defined() -> None:
    with pytest.raises(OpError) as caught:
        parse("y[i] = x[i]", returns=("y", "z"))
    assert str(caught.value) == (
        "<text>:1: z is returned but not defined; defined are y\n    y[i] = x[i]\n    ^"
    )
    with pytest.raises(OpError) as caught:
        parse("y[i] = x[i]", returns=("y", "y"))
    assert str(caught.value) == "<text>:1: a tensor is returned twice\n    y[i] = x[i]\n    ^"


def test_expressions_nested_too_deeply() -> None:
    for opening, closing in (("(", ")"), ("exp(", ")"), ("-", ""), ("2**", ""), ("1+(", ")")):
        assert parse(f"y[i] = {opening * 70}x[i]{closing * 70}").equations
        text = f"y[i] = {opening * 1000}x[i]{closing * 1000}"
        with pytest.raises(ParseError) as caught:
            parse(text)
        message, line, caret = str(caught.value).split("\n")
        assert message == (
            "<text>:1: expressions are nested too deeply here; give a part an equation of its own"
        )
        # Of a line too long to show, what lies around the caret.
        assert line.startswith("    ...") and line.endswith("...") and len(line) == 130
        assert line.strip(" .") in text and 4 < caret.index("^") < 130


WORDS = (
    *["x", "y", "i", "j", "k", "N", "sum", "max", "exp", "where", "in", "over", "dtype", "f32", "size", "index", "not", "1", "0.5", "inf", "-1"],
    *["+", "-", "*", "**", "/", "//", "%", "<", "<=", "==", "&", "|", "~", "=", "+=", "max=", "(", ")", "[", "]", ",", ":", "->", ";", "\n", "#", "."],
    "over=", "where=", "y[i] =", "x[i]", "sum(x[i,k])", "k in 0:N", "f(x) ->",
)  # fmt: skip


@settings(max_examples=500, derandomize=True, deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=14), st.booleans())
def test_whatever_the_text_it_parses_or_fails_with_an_error_of_ours(
    words: list[str], start: bool
) -> None:
    text = " ".join((["y[i] ="] if start else []) + words)
    try:
        op = parse(text)
    except OpError as error:
        assert "\n" not in str(error) or "^" in str(error)
    else:
        assert parse(op.text) == op
