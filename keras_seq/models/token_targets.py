"""Refuse `class_weight` for targets `[B, T]`: Keras takes their rows for one-hot vectors, without an error.

weight of a row = class_weight[argmax over the T positions], the weight of a position
"""


class TokenTargets:
    """Part of a Keras model whose targets are ids `[B, T]`; to be listed before `keras.Model`."""

    def fit(self, *args, class_weight=None, **kwargs):
        """Train the model, as `keras.Model.fit`.

        Args:
            *args: Arguments of `keras.Model.fit`.
            class_weight: None; as in Keras where a functional model gives no sequence.
            **kwargs: Further arguments of `keras.Model.fit`.

        Raises:
            ValueError: There is a `class_weight`.
        """
        self._refuse(class_weight)
        return super().fit(*args, class_weight=class_weight, **kwargs)

    def train_on_batch(self, x, y=None, sample_weight=None, class_weight=None, return_dict=False):
        """Train the model on one batch, as `keras.Model.train_on_batch`.

        Args:
            x: Ids `[B, T]`, or what the model takes.
            y: Target ids `[B, T]`.
            sample_weight: `[B]` or `[B, T]`, or None.
            class_weight: None; as in Keras where a functional model gives no sequence.
            return_dict: Whether to return a dict instead of a list.

        Raises:
            ValueError: There is a `class_weight`.
        """
        self._refuse(class_weight)
        return super().train_on_batch(x, y, sample_weight, class_weight, return_dict)

    def _refuse(self, class_weight):
        outputs = getattr(self, "outputs", None) or []  # of a functional model; a head may have targets [B]
        has_token_targets = not outputs or any(len(y.shape) == 3 for y in outputs)
        if class_weight is not None and has_token_targets:
            raise ValueError(
                f"class_weight={class_weight!r}; expected None: Keras takes targets [B, T] for one-hot rows. Pass "
                "sample_weight [B, T], such as weights[targets]."
            )
