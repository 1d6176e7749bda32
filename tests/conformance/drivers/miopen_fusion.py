"""Run the real MIOpen, so that it writes its database files for fusions and batch normalisations.

* ``plan`` compiles both as one fusion for inference.
* ``norm`` runs the forward batch normalisation of a training step.
"""

# "plan" fuses a convolution and a batch normalisation. The program is called as "miopen_fusion.py plan" or
# "miopen_fusion.py norm".

import ctypes
import sys

from miopen import Library

N, C, HEIGHT, K, FILTER = 4, 64, 14, 64, 3
SPATIAL = 1


def plan(library):
    image, weights = library.tensor("f32_r", N, C, HEIGHT, HEIGHT), library.tensor("f32_r", K, C, FILTER, FILTER)
    convolution = library.made("miopenCreateConvolutionDescriptor")
    library.ask("miopenInitConvolutionDescriptor", convolution, 0, 1, 1, 1, 1, 1, 1)
    made, operator = ctypes.c_void_p(), ctypes.c_void_p()
    library.ask("miopenCreateFusionPlan", ctypes.byref(made), 0, image)
    library.ask("miopenCreateOpConvForward", made, ctypes.byref(operator), convolution, weights)
    scales = library.tensor("f32_r", 1, K, 1, 1)
    library.ask("miopenCreateOpBatchNormInference", made, ctypes.byref(operator), SPATIAL, scales)
    library.ask("miopenCompileFusionPlan", library.handle, made)


def norm(library):
    image, scales = library.tensor("f32_r", N, C, HEIGHT, HEIGHT), library.tensor("f32_r", 1, C, 1, 1)
    one, zero = ctypes.c_float(1), ctypes.c_float(0)
    x, y = ((ctypes.c_float * (N * C * HEIGHT * HEIGHT))() for _ in range(2))
    scale, bias, mean, variance, saved_mean, saved_variance = ((ctypes.c_float * C)() for _ in range(6))
    words = (SPATIAL, ctypes.byref(one), ctypes.byref(zero), image, x, image, y, scales, scale, bias)
    averages = (ctypes.c_double(0.1), mean, variance, ctypes.c_double(1e-5), saved_mean, saved_variance)
    library.ask("miopenBatchNormalizationForwardTraining", library.handle, *words, *averages)


{"plan": plan, "norm": norm}[sys.argv[1]](Library())
