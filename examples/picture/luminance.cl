/* Luminance of an RGB picture, ITU-R BT.601: one work item a pixel. */
__kernel void luminance(__global const float *rgb, __global float *grey, ulong pixels)
{
  size_t i = get_global_id(0);
  if (i < pixels)
    grey[i] = 0.299f * rgb[3 * i] + 0.587f * rgb[3 * i + 1] + 0.114f * rgb[3 * i + 2];
}
