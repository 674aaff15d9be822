package group

// Job is long-running work that runs outside of the inputs, so that no input waits for it. Begin
// and End are inputs like any other. After Begin, End always follows.
type Job struct {
	Lane Lane
	// Begin prepares the data that Run needs. Nil means that nothing is needed.
	Begin func()
	// Run works on data that no other code touches before End. It returns early once stop returns
	// true.
	Run func(stop func() bool)
	// End applies the result.
	End func()
}

// Lane is a serialization group: jobs of one lane run one after the other.
type Lane uint8

// Lanes. Building a snapshot that a peer requested does not wait for loading one, and the reverse.
const (
	Making Lane = iota
	Loading
	NumLanes
)

// Submit queues a job.
func (g *Group) Submit(j Job) { g.jobs = append(g.jobs, j) }

// Jobs returns the jobs submitted since the last call. The caller runs the jobs of each lane in
// order.
func (g *Group) Jobs() []Job {
	jobs := g.jobs
	g.jobs = nil
	return jobs
}
