package group

// Job is work that takes long, done outside of the inputs so that none waits for
// it. Begin and End are inputs like any other. Once Begin was called, End follows.
type Job struct {
	Lane Lane
	// Begin takes what Run needs; nil when that is nothing.
	Begin func()
	// Run works on what nothing else touches before End. It returns early when stop
	// says so.
	Run func(stop func() bool)
	// End takes the result over.
	End func()
}

// Lane tells which jobs stand in each other's way: those of one lane are done one
// after the other.
type Lane uint8

// Lanes. Making a snapshot that somebody asked for does not wait for loading one, and
// the other way round.
const (
	Making Lane = iota
	Loading
	NumLanes
)

// Submit has a job done.
func (g *Group) Submit(j Job) { g.jobs = append(g.jobs, j) }

// Jobs returns the jobs submitted since the last call, for the caller to do, in order of each lane.
func (g *Group) Jobs() []Job {
	jobs := g.jobs
	g.jobs = nil
	return jobs
}
