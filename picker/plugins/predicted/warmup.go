package predicted

// A copy can be made by a warm-up: a separate one-token request with the same prompt, while the
// original stays with the holder. It delays no client, so its price is its full cost to others. It
// is chosen if it is cheaper than moving the request and the candidate is idle.

// warms reports whether to make the copy at candidate l by a warm-up, and sets the account's price.
func (s *scorer) warms(d *decision, l int, a *account) bool {
	if !s.WarmUp || !s.idle(d, l) || !d.MayWarmUp(l) {
		return false
	}
	price := s.warmUpPrice(d, l)
	if price >= a.price {
		return false
	}
	a.price = price
	return true
}

// warmUp requests the warm-up.
func (s *scorer) warmUp(d *decision, l int) {
	d.WarmUp(l)
	s.copies.churn.add(d.Now, float64(d.Work(l).New))
	s.copies.work.add(d.Now, d.owns[l])
}

// idle reports whether nothing waits at candidate l, including other warm-ups, which have no first
// token until they end. The delay of decoding requests is part of the price.
func (s *scorer) idle(d *decision, l int) bool {
	v := d.At(l)
	return v.Load.Waiting <= 0 && d.waits[l] <= v.Cost.Step
}

// warmUpPrice returns the balance needed for a warm-up: CopyThreshold times the loss of others, as
// in copyPrice, and at least the work itself. Idle engines would do it for free, but a prompt that
// is not requested again is not worth it.
func (s *scorer) warmUpPrice(d *decision, l int) float64 {
	v, w, one := d.At(l), d.Work(l), *d
	one.answer = 1
	brings := v.Cost.Prefill(w)
	others := s.Predict(v.Cost, &v.Load, w, d.waits[l], 1).Others + s.MemoryWeight*one.memoryCost(l, v, w)
	own := s.OwnWeight * brings
	spare := own - min(brings*d.busy/(1-d.busy), own)
	return max(s.CopyThreshold*(others-spare+brings*d.full), own)
}
