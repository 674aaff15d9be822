package trace

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"
)

// Runs describes agent runs. A lead agent works on a task in turns, with a tool between two turns.
// Between rounds it hands parts of the task to sub-agents, waits for all of them, and continues with
// their reports. Sub-agents have the lead's system prompt and tools, and their own parts of the task.
//
// Requests of a run depend on each other, so they have no fixed arrival times: a turn arrives after
// the answer before it ([Request.After]).
type Runs struct {
	Name     string
	Agents   int     // different leads, each with its own system prompt
	Skew     float64 // Zipf exponent of their popularity; 0: even
	Tenants  int     // runs are spread evenly over them
	System   Spread  // tokens of system prompt and tools
	Task     Spread  // tokens of a run's first question
	Rounds   Spread  // fan-outs of a run
	Turns    Spread  // turns of the lead before each fan-out, and after the last one
	Fan      Spread  // sub-agents of a fan-out
	SubTask  Spread  // tokens of a sub-agent's task
	SubTurns Spread  // turns of a sub-agent
	Result   Spread  // tokens of a tool's result
	Answer   Spread  // tokens
	Report   Spread  // tokens of a sub-agent's report to the lead
	Tool     Spread  // seconds of a tool
	Pauses   float64 // share of the lead's turns before which a person pauses
	Pause    Spread  // seconds
	Limit    int     // context tokens at which an agent ends
}

// AgentRuns are the built-in loads of agent runs.
var AgentRuns = []Runs{
	{ // coding agents that explore with sub-agents
		Name: "agentruns", Agents: 4, Skew: 1, Tenants: 6, System: Spread{9_000, .3, 18_000}, Task: Spread{2_500, .9, 20_000},
		Rounds: Spread{2, .5, 5}, Turns: Spread{4, .6, 15}, Fan: Spread{4, .6, 12}, SubTask: Spread{800, .7, 6_000}, SubTurns: Spread{4, .7, 20},
		Result: Spread{900, 1.1, 12_000}, Answer: Spread{120, .8, 1_500}, Report: Spread{500, .6, 2_000},
		Tool: Spread{3, 1, 60}, Limit: 110_000,
	},
	{ // research agents: many sub-agents that read long documents
		Name: "researchruns", Agents: 2, Tenants: 4, System: Spread{5_000, .2, 8_000}, Task: Spread{1_000, .8, 8_000},
		Rounds: Spread{2, .4, 4}, Turns: Spread{1.5, .5, 4}, Fan: Spread{8, .5, 24}, SubTask: Spread{400, .6, 2_000}, SubTurns: Spread{5, .5, 15},
		Result: Spread{5_000, .8, 30_000}, Answer: Spread{150, .7, 1_500}, Report: Spread{800, .5, 3_000},
		Tool: Spread{1.5, .8, 20}, Limit: 120_000,
	},
	{ // long single agents with slow tools, a few helpers and a person who answers questions
		Name: "longruns", Agents: 6, Skew: 1.2, Tenants: 10, System: Spread{12_000, .3, 20_000}, Task: Spread{6_000, 1, 40_000},
		Rounds: Spread{1, .4, 3}, Turns: Spread{14, .6, 50}, Fan: Spread{2, .4, 5}, SubTask: Spread{1_500, .8, 10_000}, SubTurns: Spread{6, .7, 25},
		Result: Spread{1_500, 1.2, 16_000}, Answer: Spread{180, .9, 2_000}, Report: Spread{700, .6, 3_000},
		Tool: Spread{6, 1.2, 120}, Pauses: .06, Pause: Spread{60, .8, 300}, Limit: 120_000,
	},
}

// RunNames returns the names of the built-in loads of agent runs.
func RunNames() []string {
	var names []string
	for i := range AgentRuns {
		names = append(names, AgentRuns[i].Name)
	}
	return names
}

// RunsByName returns a built-in load of agent runs.
func RunsByName(name string) (Runs, error) {
	i := slices.IndexFunc(AgentRuns, func(r Runs) bool { return r.Name == name })
	if i < 0 {
		return Runs{}, fmt.Errorf("trace: no agent runs %q", name)
	}
	return AgentRuns[i], nil
}

// Generate generates runs that start at random moments of the length. Times of arrival are those on
// idle engines; a player replaces the times of requests that depend on others.
func (w Runs) Generate(o GenerateOptions) *Trace {
	setDefault(&o.Rate, 1)
	setDefault(&o.Length, 30*time.Minute)
	setDefault(&o.BlockSize, DefaultBlockSize)
	g := runGenerator{Runs: w, generator: generator{
		Workload: Workload{Skew: w.Skew}, rng: rand.New(rand.NewPCG(o.Seed, 0xa6e)), preambles: map[[2]int][]Block{},
		trace: &Trace{Name: w.Name, BlockSize: o.BlockSize, Length: o.Length},
	}}
	for want := max(int(o.Rate*o.Length.Seconds()), 1); len(g.trace.Requests) < want; {
		g.run()
	}
	t := g.trace
	t.sortRuns()
	t.nameAnswers()
	for k := range w.Tenants {
		t.Tenants = append(t.Tenants, "tenant-"+strconv.Itoa(k))
	}
	return t
}

// sortRuns sorts requests by arrival and renumbers the ones that they wait for.
func (t *Trace) sortRuns() {
	order := make([]int32, len(t.Requests))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(a, b int32) int { return byArrival(t.Requests[a], t.Requests[b]) })
	place, sorted := make([]int32, len(order)), make([]Request, len(order))
	for to, from := range order {
		place[from], sorted[to] = int32(to), t.Requests[from]
	}
	for i := range sorted {
		for k, n := range sorted[i].After {
			sorted[i].After[k] = place[n]
		}
	}
	t.Requests = sorted
}

type runGenerator struct {
	Runs
	generator
}

// agent is a session of a run.
type agent struct {
	session int32
	context int
	chain   []Block
	last    []int32       // requests after which its next turn arrives
	at      time.Duration // when the last of them ends on an idle engine
}

// run adds the requests of one run.
func (g *runGenerator) run() {
	rng, t := g.rng, g.trace
	t.Programs++
	which, tenant := g.pick(g.Agents), int32(rng.IntN(max(g.Tenants, 1)))
	system := g.System.tokens(rand.New(rand.NewPCG(uint64(which), 1)))
	common := g.common([2]int{which, 0}, nil, system)
	lead := g.agent(system+g.Task.tokens(rng), common, time.Duration(rng.Int64N(int64(t.Length))))
	for round := range g.Rounds.tokens(rng) + 1 {
		if round > 0 && !g.fanOut(&lead, system, common, tenant) {
			return
		}
		for turn := range g.Turns.tokens(rng) {
			if turn > 0 {
				lead.context += g.Result.tokens(rng)
			}
			if !g.turn(&lead, tenant, g.pause(turn > 0)) {
				return
			}
		}
	}
}

// fanOut adds the sub-agents of one round. It reports whether the lead can continue.
func (g *runGenerator) fanOut(lead *agent, system int, common []Block, tenant int32) bool {
	rng := g.rng
	after, at := lead.last, lead.at
	lead.last = nil
	for range g.Fan.tokens(rng) {
		sub := g.agent(system+g.SubTask.tokens(rng), common, at)
		sub.last = after
		for turn := range g.SubTurns.tokens(rng) {
			if turn > 0 {
				sub.context += g.Result.tokens(rng)
			}
			if !g.turn(&sub, tenant, g.tool(turn > 0)) {
				break
			}
		}
		lead.last, lead.at = append(lead.last, sub.last...), max(lead.at, sub.at)
		lead.context += g.Report.tokens(rng)
	}
	return lead.context < g.Limit
}

func (g *runGenerator) agent(context int, common []Block, at time.Duration) agent {
	g.trace.Sessions++
	return agent{session: int32(g.trace.Sessions - 1), context: context, chain: slices.Clone(common), at: at}
}

// turn adds a request of an agent. It returns false if its context is too long.
func (g *runGenerator) turn(a *agent, tenant int32, pause time.Duration) bool {
	t, answer := g.trace, g.Answer.tokens(g.rng)
	if a.context+answer > g.Limit {
		return false
	}
	a.chain = g.extend(a.chain, a.context)
	r := Request{
		At: a.at + pause, Input: a.context, Output: answer, Session: a.session, Tenant: tenant, Program: int32(t.Programs),
		After: slices.Clone(a.last), Pause: pause, Blocks: slices.Clone(a.chain),
	}
	if r.Input%t.BlockSize > 0 {
		r.Blocks = append(r.Blocks, g.block())
	}
	t.Requests = append(t.Requests, r)
	a.last, a.at = []int32{int32(len(t.Requests) - 1)}, r.At+time.Duration(unhurried(float64(answer))*float64(time.Second))
	a.context += answer
	return true
}

// tool returns the time that a tool takes, if there is one.
func (g *runGenerator) tool(used bool) time.Duration {
	if !used {
		return 0
	}
	return time.Duration(g.Tool.draw(g.rng) * float64(time.Second))
}

// pause is tool, with the pauses of a person.
func (g *runGenerator) pause(used bool) time.Duration {
	d := g.tool(used)
	if used && g.rng.Float64() < g.Pauses {
		d += time.Duration(g.Pause.draw(g.rng) * float64(time.Second))
	}
	return d
}
