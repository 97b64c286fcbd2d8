"""Define optimizers by name, with Keras's arguments and defaults plus clipping and a non-finite guard (GradientGuard).

Values that differ from Keras's defaults in a training (clipping at 1, momentum 0.9 for SGD) are in `TrainConfig`.
Muon and NorMuon have files of their own.
"""

import keras

from keras_seq.training.gradient_guard import GradientGuard
from keras_seq.training.muon import Muon
from keras_seq.training.normuon import NorMuon


def _class_of(optimizer_class):
    """Return the class that Keras makes instances of: on PyTorch a subclass that updates all weights at once."""
    return type(optimizer_class.__new__(optimizer_class))


@keras.saving.register_keras_serializable(package="keras_seq")
class SGD(GradientGuard, _class_of(keras.optimizers.SGD)):
    """Update weights by gradient descent: `W <- W - lr g`.

    With `momentum=0.9, nesterov=True` (Sutskever et al., 2013), as in `TrainConfig`:
    `m <- 0.9 m - lr g; W <- W + 0.9 m - lr g`.

    Args:
        *args: Arguments of `keras.optimizers.SGD`, with its defaults.
        **kwargs: These, and `global_clipnorm`, `loss_scale_factor`, `gradient_accumulation_steps` of `GradientGuard`.
    """


@keras.saving.register_keras_serializable(package="keras_seq")
class Adagrad(GradientGuard, _class_of(keras.optimizers.Adagrad)):
    """Update weights by Adagrad (Duchi et al., 2011): `v <- v + g^2; W <- W - lr g / sqrt(v)`.

    Args:
        *args: Arguments of `keras.optimizers.Adagrad`, with its defaults.
        **kwargs: These, and `global_clipnorm`, `loss_scale_factor`, `gradient_accumulation_steps` of `GradientGuard`.
    """


@keras.saving.register_keras_serializable(package="keras_seq")
class RMSprop(GradientGuard, _class_of(keras.optimizers.RMSprop)):
    """Update weights by RMSprop (Tieleman & Hinton, 2012): `v <- 0.9 v + 0.1 g^2; W <- W - lr g / sqrt(v)`.

    Args:
        *args: Arguments of `keras.optimizers.RMSprop`, with its defaults.
        **kwargs: These, and `global_clipnorm`, `loss_scale_factor`, `gradient_accumulation_steps` of `GradientGuard`.
    """


@keras.saving.register_keras_serializable(package="keras_seq")
class Adam(GradientGuard, _class_of(keras.optimizers.Adam)):
    """Update weights by Adam (Kingma & Ba, 2015, arXiv:1412.6980).

    `m <- b1 m + (1 - b1) g; v <- b2 v + (1 - b2) g^2; W <- W - lr m_hat / (sqrt(v_hat) + eps)`, m_hat and v_hat
    bias-corrected.

    Args:
        *args: Arguments of `keras.optimizers.Adam`, with its defaults.
        **kwargs: These, and `global_clipnorm`, `loss_scale_factor`, `gradient_accumulation_steps` of `GradientGuard`.
    """


@keras.saving.register_keras_serializable(package="keras_seq")
class AdamW(GradientGuard, _class_of(keras.optimizers.AdamW)):
    """Update weights by AdamW (Loshchilov & Hutter, 2019, arXiv:1711.05101): Adam after `W <- W - lr weight_decay W`.

    Args:
        *args: Arguments of `keras.optimizers.AdamW`, with its defaults.
        **kwargs: These, and `global_clipnorm`, `loss_scale_factor`, `gradient_accumulation_steps` of `GradientGuard`.
    """


@keras.saving.register_keras_serializable(package="keras_seq")
class Lion(GradientGuard, _class_of(keras.optimizers.Lion)):
    """Update weights by Lion (Chen et al., 2023, arXiv:2302.06675).

    `W <- W - lr sign(0.9 m + 0.1 g); m <- 0.99 m + 0.01 g`. Each update has size `learning_rate`; use 1/3 to 1/10 of
    Adam's learning rate.

    Args:
        *args: Arguments of `keras.optimizers.Lion`, with its defaults.
        **kwargs: These, and `global_clipnorm`, `loss_scale_factor`, `gradient_accumulation_steps` of `GradientGuard`.
    """


OPTIMIZERS = {
    "sgd": SGD,
    "adagrad": Adagrad,
    "rmsprop": RMSprop,
    "adam": Adam,
    "adamw": AdamW,
    "lion": Lion,
    "muon": Muon,
    "normuon": NorMuon,
}
"""Optimizer classes by their names in `TrainConfig.optimizer`."""
