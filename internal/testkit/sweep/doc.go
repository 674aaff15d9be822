// Package sweep tests decoders with systematic changes of the seeds of their fuzz targets. A fuzz
// target that runs for seconds tries few inputs, and different ones in each run. A sweep tries the
// same inputs each time: every byte value at every position of a short seed, selected values at
// selected positions of a long one, and seeds that are cut, lack a byte, or have one twice.
package sweep
