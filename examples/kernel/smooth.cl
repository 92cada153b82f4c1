// Computes the mean of each value and its two neighbours. The first and last value are their own neighbour.
kernel void smooth(global const float *from, global float *to, int n)
{
	int i = get_global_id(0);
	to[i] = (from[max(i - 1, 0)] + from[i] + from[min(i + 1, n - 1)]) / 3.0f;
}
