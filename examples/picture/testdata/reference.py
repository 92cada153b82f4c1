"""What the main job should compute, in double precision with NumPy alone."""

import numpy

rgb = numpy.frombuffer(pixels, dtype=numpy.uint8).reshape(height, width, 3).astype(float)
grey = rgb @ [0.299, 0.587, 0.114]
p = numpy.pad(grey, 1, mode="edge")
kernel = numpy.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]], dtype=float)
gx = sum(kernel[i, j] * p[i : i + height, j : j + width] for i in range(3) for j in range(3))
gy = sum(kernel[j, i] * p[i : i + height, j : j + width] for i in range(3) for j in range(3))
edges = numpy.clip(numpy.rint(numpy.hypot(gx, gy)), 0, 255).astype(numpy.uint8).tobytes()
