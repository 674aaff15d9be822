package clusters

// event is a scheduled call.
type event struct {
	at    float64
	order int
	do    func()
}

// events is a heap of scheduled calls, ordered by time and then by insertion.
type events struct {
	list  []event
	order int
}

func (q *events) len() int { return len(q.list) }

func (q *events) less(i, j int) bool {
	a, b := &q.list[i], &q.list[j]
	return a.at < b.at || a.at == b.at && a.order < b.order
}

func (q *events) push(at float64, do func()) {
	q.order++
	q.list = append(q.list, event{at, q.order, do})
	for i := len(q.list) - 1; i > 0; {
		up := (i - 1) / 2
		if !q.less(i, up) {
			return
		}
		q.list[i], q.list[up] = q.list[up], q.list[i]
		i = up
	}
}

func (q *events) pop() event {
	first, last := q.list[0], len(q.list)-1
	q.list[0], q.list[last] = q.list[last], event{}
	q.list = q.list[:last]
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < last; child++ {
			if q.less(child, least) {
				least = child
			}
		}
		if least == i {
			return first
		}
		q.list[i], q.list[least] = q.list[least], q.list[i]
		i = least
	}
}

// earliest finds the engine of a cluster that is free first.
type earliest struct {
	leaves int       // a power of two
	free   []float64 // when an engine is free
	best   []int     // tree over the leaves; best[1] is the root
}

func newEarliest(engines int) earliest {
	e := earliest{leaves: 1, free: make([]float64, engines)}
	for e.leaves < engines {
		e.leaves *= 2
	}
	e.best = make([]int, 2*e.leaves)
	for i := range e.leaves {
		e.best[e.leaves+i] = min(i, engines-1)
	}
	for i := e.leaves - 1; i > 0; i-- {
		e.best[i] = e.best[2*i]
	}
	return e
}

func (e *earliest) engine() int { return e.best[min(1, len(e.best)-1)] }

// set records when an engine is free.
func (e *earliest) set(engine int, free float64) {
	e.free[engine] = free
	for i := (e.leaves + engine) / 2; i > 0; i /= 2 {
		a, b := e.best[2*i], e.best[2*i+1]
		if e.best[i] = a; e.free[b] < e.free[a] {
			e.best[i] = b
		}
	}
}
