package flow

// What is said of a request's work before it runs comes from its sizes. How long engines
// took for what was foretold is learned for each flow, and for all: who asks for long
// answers and gets short ones is not charged for long ones, nor passed by others for it.

const (
	learnFlow = .1  // weight of a request in its flow's ratio
	learnAll  = .02 // and in that of all
	mostRatio = 100.
)

// foretold returns the work of a request in seconds of an engine, from what its sizes say.
func (c *Core) foretold(f *flow, sizes float64) float64 {
	switch sizes = max(sizes, 0); {
	case f.ratio > 0:
		return sizes * f.ratio
	case c.ratio > 0:
		return sizes * c.ratio
	default:
		return sizes
	}
}

// learn takes what a request took of an engine, for which its sizes foretold so much.
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
