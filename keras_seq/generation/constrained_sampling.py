"""Sample one token of a text that a `TokenAutomaton` constrains; a logit filter with a state.

    allowed(n)   table[s, n] >= 0, and from there the text can end within the tokens that are left
    s not final  draw n from the allowed tokens;                                    s := table[s, n]
    s final      draw n from all tokens; where n is not allowed the text ends before it

So the text ends where the model itself would leave the constraint, and always within its number of tokens. A model
needs no token that ends a text; one that has it (`document_token`) ends the text by it.
"""

import numpy as np
from keras import ops

from keras_seq.generation.constraints import TokenAutomaton
from keras_seq.generation.samplers import sample_token

ENDED = -2  # id after the end of a text, and state of its row
NEG_INF = -float("inf")


def constraint_rows(automaton: TokenAutomaton | None, batch_size: int, max_new_tokens: int):
    """Return what a loop carries for B rows, before their first token, and the tables, which do not change.

    Args:
        automaton: The constraint; None for none.
        batch_size: B.
        max_new_tokens: Tokens that a text may have.

    Returns:
        `(state [B], left [B])` and `(table [S, V], distance [S])`, int32; two empty tuples without a constraint.

    Raises:
        ValueError: No text of the constraint has so few tokens.
    """
    if automaton is None:
        return (), ()
    if automaton.distance[0] > max_new_tokens:
        raise ValueError(
            f"max_new_tokens={max_new_tokens}; expected at least {automaton.distance[0]}, the tokens of the shortest "
            "text of the constraint."
        )
    rows = np.zeros(batch_size, "int32"), np.full(batch_size, max_new_tokens, "int32")
    return rows, (automaton.table, automaton.distance)


def sample_row(logits, uniform, options, in_text, rows, tables):
    """Draw one id for each row, with a constraint or without: `sample_constrained` or `sample_token`."""
    if rows:
        return sample_constrained(logits, uniform, options, in_text, rows, tables)
    return sample_token(logits, uniform, options, *in_text), rows


def sample_constrained(logits, uniform, options, in_text, rows, tables):
    """Draw one id for each row.

    Args:
        logits: `[B, V]`.
        uniform: `[B]`, in [0, 1), as for `sample_token`.
        options: Values of the logit filters, which run after the constraint.
        in_text: A tuple of the ids that `repetition_penalty` applies to, bool `[B, V]`, or an empty tuple.
        rows: `(state [B], left [B])`, of `constraint_rows` or the call before.
        tables: `(table [S, V], distance [S])`.

    Returns:
        Ids int32 `[B]`, ENDED after the end of a text and -1 where logits are not finite; and `rows`.
    """
    (state, left), (table, distance) = rows, tables
    following = ops.take(table, ops.maximum(state, 0), axis=0)  # [B, V]
    reach = ops.take(distance, ops.maximum(following, 0), axis=0)
    allowed = ops.logical_and(following >= 0, reach < left[:, None])
    may_end = ops.take(distance, ops.maximum(state, 0), axis=0) == 0
    masked = ops.where(ops.logical_or(allowed, may_end[:, None]), logits, NEG_INF)
    ids = sample_token(masked, uniform, options, *in_text)
    column = ops.maximum(ids, 0)[:, None]
    goes_on = ops.logical_and(ops.take_along_axis(allowed, column, axis=1)[:, 0], state >= 0)
    after = ops.where(goes_on, ops.take_along_axis(following, column, axis=1)[:, 0], ENDED)
    failed = ops.logical_and(ids < 0, state >= 0)  # logits that are not finite
    return ops.where(failed, -1, ops.where(goes_on, ids, ENDED)), (after, left - 1)
