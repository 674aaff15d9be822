package fit

import "math"

// Linear estimates three non-negative factors of a linear model online: y = Σ a_j × x_j. Inputs are
// scaled so that the prior factor is 1. Each sample decays the previous ones, errors are relative
// to the prediction, and a ridge term pulls directions that the samples do not determine towards
// the common scale. A change of speed is therefore learned after a few samples, a change of shape
// after more.
//
// It is a plain value of 13 numbers and not safe for concurrent use.
type Linear struct {
	xx [6]float64 // upper triangle of Σ x xᵀ: 00 01 02 11 12 22
	xy [3]float64
	sx float64    // Σ (Σx)², for the common scale
	sy float64    // Σ (Σx) y
	A  [3]float64 // the factors
	N  float64    // decayed number of samples
}

const (
	fitFade  = 0.96 // decay of older samples per sample
	fitRidge = 1.5  // weight of the common scale, in samples
	fitPrior = 0.5  // weight of the prior scale 1, in samples
	fitLow   = 0.02 // bounds of a factor relative to the common scale
	fitHigh  = 20
)

// Clip is the largest accepted ratio of observed to predicted values.
const Clip = 4

// Begin initializes a zero fit.
func (f *Linear) Begin() {
	if f.A[0] == 0 {
		*f = New()
	}
}

// New returns a fit with the prior factors.
func New() Linear { return Linear{A: [3]float64{1, 1, 1}} }

// Dot returns Σ a_j × x_j.
func Dot(a, x [3]float64) float64 { return a[0]*x[0] + a[1]*x[1] + a[2]*x[2] }

// Observe adds one sample; trust in (0, 1] is its weight.
func (f *Linear) Observe(x [3]float64, y, trust float64) {
	want := Dot(f.A, x)
	if !(want > 0) || !(y >= 0) || math.IsInf(y, 0) || math.IsInf(want, 0) {
		return
	}
	y = min(max(y, want/Clip), want*Clip)
	w := trust / (want * want)
	f.fade()
	f.xx[0] += w * x[0] * x[0]
	f.xx[1] += w * x[0] * x[1]
	f.xx[2] += w * x[0] * x[2]
	f.xx[3] += w * x[1] * x[1]
	f.xx[4] += w * x[1] * x[2]
	f.xx[5] += w * x[2] * x[2]
	for j := range x {
		f.xy[j] += w * x[j] * y
	}
	sum := x[0] + x[1] + x[2]
	f.sx += w * sum * sum
	f.sy += w * sum * y
	f.N += trust
	f.solve()
	if grown := Dot(f.A, x) / want; grown > 1 {
		f.weigh(1 / (grown * grown))
	}
}

// weigh multiplies the weight of all samples, whose errors are relative to the predictions of their
// time. Otherwise the samples from before a slowdown would outweigh those after it.
func (f *Linear) weigh(by float64) {
	for i := range f.xx {
		f.xx[i] *= by
	}
	for i := range f.xy {
		f.xy[i] *= by
	}
	f.sx *= by
	f.sy *= by
}

func (f *Linear) fade() {
	f.weigh(fitFade)
	f.N *= fitFade
}

// solve computes the factors by ridge regression towards the common scale, then clamps them.
func (f *Linear) solve() {
	if f.N <= 0 || f.sx <= 0 {
		return
	}
	unit := f.sx / f.N // weight of one sample, in squared inputs
	scale := (f.sy + fitPrior*unit) / (f.sx + fitPrior*unit)
	if !(scale > 0) {
		return
	}
	// Each input gets its own ridge weight, so that a factor whose input is always tiny stays at
	// the common scale.
	m, v := f.xx, f.xy
	for j, at := range [3]int{0, 3, 5} {
		r := fitRidge * unit / 3
		m[at] += r
		v[j] += r * scale
	}
	a, ok := solve3(m, v)
	if !ok {
		a = [3]float64{scale, scale, scale}
	}
	for j := range a {
		f.A[j] = min(max(a[j], scale*fitLow), scale*fitHigh)
	}
}

// solve3 solves the symmetric positive system m a = v by elimination.
func solve3(m [6]float64, v [3]float64) ([3]float64, bool) {
	if !(m[0] > 0) {
		return v, false
	}
	l10, l20 := m[1]/m[0], m[2]/m[0]
	d1 := m[3] - l10*m[1]
	if !(d1 > 0) {
		return v, false
	}
	e := m[4] - l20*m[1]
	l21 := e / d1
	d2 := m[5] - l20*m[2] - l21*e
	if !(d2 > 0) {
		return v, false
	}
	v1 := v[1] - l10*v[0]
	v2 := v[2] - l20*v[0] - l21*v1
	c := v2 / d2
	b := v1/d1 - l21*c
	return [3]float64{v[0]/m[0] - l10*b - l20*c, b, c}, true
}
