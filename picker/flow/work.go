package flow

// A request's work is predicted from its sizes. The ratio of actual to predicted engine time is
// learned per flow and overall. So a client that requests long responses and gets short ones is
// neither charged for long ones nor overtaken because of them.

const (
	learnFlow = .1  // weight of a request in its flow's ratio
	learnAll  = .02 // weight in the overall ratio
	mostRatio = 100.
)

// predictedWork returns a request's predicted work in engine seconds.
func (c *Core) predictedWork(f *flow, sizes float64) float64 {
	switch sizes = max(sizes, 0); {
	case f.ratio > 0:
		return sizes * f.ratio
	case c.ratio > 0:
		return sizes * c.ratio
	default:
		return sizes
	}
}

// learn updates the ratios with a request's engine time.
func (c *Core) learn(f *flow, sizes, service float64) {
	if sizes <= 0 || service < 0 {
		return
	}
	r := min(max(service/sizes, 1/mostRatio), mostRatio)
	f.ratio = blend(f.ratio, r, learnFlow)
	c.ratio = blend(c.ratio, r, learnAll)
}

func blend(old, sample, weight float64) float64 {
	if old == 0 {
		return sample
	}
	return old + (sample-old)*weight
}
