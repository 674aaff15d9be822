package predicted

// A copy can be made by a request that nobody waits for: one of our own, of one token and
// with the same prompt, while the request in hand stays with the holder. Nobody is late by
// it then, so that its price is what it costs others alone, whole: the request in hand takes
// nothing of it with it. It is made where it is the cheaper one of the two, while the
// candidate is idle.

// warms reports whether the copy at candidate l is to be made so. The account then has its
// price.
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

// warmUp asks for it.
func (s *scorer) warmUp(d *decision, l int) {
	d.WarmUp(l)
	s.copies.churn.add(d.Now, float64(d.Work(l).New))
	s.copies.work.add(d.Now, d.owns[l])
}

// idle reports whether nobody waits at candidate l, another warm-up included: that has no
// first token until it ends. Who decodes there is delayed by it, and that is in its price.
func (s *scorer) idle(d *decision, l int) bool {
	v := d.At(l)
	return v.Load.Waiting <= 0 && d.waits[l] <= v.Cost.Step
}

// warmUpPrice returns what the accounts must have for it: CopyThreshold times what others
// lose, which counts as in copyPrice; and the work itself at the least, which idle engines
// would do for nothing: a prompt that nobody asks for again is not worth it.
func (s *scorer) warmUpPrice(d *decision, l int) float64 {
	v, w, one := d.At(l), d.Work(l), *d
	one.answer = 1
	brings := v.Cost.Prefill(w)
	others := s.Predict(v.Cost, &v.Load, w, d.waits[l], 1).Others + s.MemoryWeight*one.memoryCost(v, w, v.WaitOfMemory(float64(w.New), 1))
	own := s.OwnWeight * brings
	spare := own - min(brings*d.busy/(1-d.busy), own)
	return max(s.CopyThreshold*(others-spare+brings*d.full), own)
}
