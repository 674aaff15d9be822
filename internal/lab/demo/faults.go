package demo

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/rig"
	"github.com/grapevine-epp/grapevine/internal/lab/sim"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/faults"
	"github.com/grapevine-epp/grapevine/internal/lab/workload"
)

// FaultCase is one fault of one engine.
type FaultCase struct {
	Name   string
	Faults faults.Faults
	Poison bool // clients send a prompt that kills any engine
}

// FaultCases are the cases of [RunFaults].
var FaultCases = []FaultCase{
	{Name: "hangs, pages answer", Faults: faults.Faults{Hang: faults.HangEngine}},
	{Name: "hangs, HTTP is dead", Faults: faults.Faults{Hang: faults.HangAll}},
	{Name: "frozen, half-open", Faults: faults.Faults{Hang: faults.HangFrozen}},
	{Name: "500 at once", Faults: faults.Faults{ErrorShare: 1}},
	{Name: "500 for a third", Faults: faults.Faults{ErrorShare: .34}},
	{Name: "30 times slower", Faults: faults.Faults{Slow: 30}},
	{Name: "5 times slower", Faults: faults.Faults{Slow: 5}},
	{Name: "resets connections", Faults: faults.Faults{ResetShare: 1}},
	{Name: "resets half-way", Faults: faults.Faults{ResetShare: 1, ResetAfter: 5}},
	{Name: "401 to everybody", Faults: faults.Faults{ErrorShare: 1, ErrorStatus: 401}},
	{Name: "404 to everybody", Faults: faults.Faults{ErrorShare: 1, ErrorStatus: 404}},
	{Name: "302 to everybody", Faults: faults.Faults{ErrorShare: 1, ErrorStatus: 302}},
	{Name: "418 to everybody", Faults: faults.Faults{ErrorShare: 1, ErrorStatus: 418}},
	{Name: "aborts everything", Faults: faults.Faults{Answer: faults.AnswerAbort}},
	{Name: "no choices", Faults: faults.Faults{Answer: faults.AnswerEmpty}},
	{Name: "half a body", Faults: faults.Faults{Answer: faults.AnswerHalf}},
	{Name: "another model", Faults: faults.Faults{Answer: faults.AnswerModel}},
	{Name: "repeated text", Faults: faults.Faults{Answer: faults.AnswerNoise}},
	{Name: "short answers", Faults: faults.Faults{Answer: faults.AnswerShort}},
	{Name: "truncated answers", Faults: faults.Faults{Answer: faults.AnswerCut}},
	{Name: "404 to one tenant", Faults: faults.Faults{ErrorShare: 1, ErrorStatus: 404, ErrorOnly: workload.TenantText}},
	{Name: "500 to one tenant", Faults: faults.Faults{ErrorShare: 1, ErrorOnly: workload.TenantText}},
	{Name: "403 to everybody", Faults: faults.Faults{ErrorShare: 1, ErrorStatus: 403}},
	{Name: "409 to everybody", Faults: faults.Faults{ErrorShare: 1, ErrorStatus: 409}},
	{Name: "429 to everybody", Faults: faults.Faults{ErrorShare: 1, ErrorStatus: 429}},
	{Name: "error in a 200", Faults: faults.Faults{Answer: faults.AnswerError}},
	{Name: "no body", Faults: faults.Faults{Answer: faults.AnswerNothing}},
	{Name: "a page of HTML", Faults: faults.Faults{Answer: faults.AnswerHTML}},
	{Name: "garbage bytes", Faults: faults.Faults{Answer: faults.AnswerBytes}},
	{Name: "wrong length", Faults: faults.Faults{Answer: faults.AnswerLength}},
	{Name: "every event twice", Faults: faults.Faults{Answer: faults.AnswerTwice}},
	{Name: "500 to streams", Faults: faults.Faults{ErrorShare: 1, ErrorOnly: workload.StreamText}},
	{Name: "400 to whole answers", Faults: faults.Faults{ErrorShare: 1, ErrorStatus: 400, ErrorOnly: workload.WholeText}},
	{Name: "500 to long prompts", Faults: faults.Faults{ErrorShare: 1, ErrorOnly: workload.LongText}},
	{Name: "400 to tools", Faults: faults.Faults{ErrorShare: 1, ErrorStatus: 400, ErrorOnly: workload.ToolText}},
	{Name: "403 to one tenant", Faults: faults.Faults{ErrorShare: 1, ErrorStatus: 403, ErrorOnly: workload.TenantText}},
	{Name: "restarts for ever", Faults: faults.Faults{Up: 2 * time.Second, Down: time.Second}},
	{Name: "poisonous prompt", Faults: faults.Faults{Poison: workload.PoisonText, Down: time.Second}, Poison: true},
}

// Times and load of [RunFaults].
const (
	faultRate  = 24.0 // requests per second
	faultSlots = 3    // concurrent sequences per engine; 60% are in use
	faultWarm  = 15 * time.Second
	faultLasts = 12 * time.Second
	faultGrace = 3 * time.Second // clients may notice a fault for this long
	faultCalm  = 4 * time.Second // pause between two cases
	faultBack  = 30 * time.Second

	faultWindows = 5 // windows in which the other engines are measured
)

// FaultsSummary holds the results of [RunFaults].
type FaultsSummary struct {
	Engines, Replicas int
	Sharing           rig.Sharing
	Rate              float64
	All, Fewer        workload.Span   // without faults: with all engines, and with one engine removed from the list
	Windows           []time.Duration // p90 of Fewer in windows of a row's length, ascending
	Rows              []FaultRow
}

// FaultRow holds the effects of one fault.
type FaultRow struct {
	Case     FaultCase
	Found    time.Duration // until every replica avoided the engine; 0: not during the fault
	Cause    string        // as reported by replicas
	First    workload.Span // requests sent before faultGrace
	Rest     workload.Span // requests sent afterwards
	Answered time.Duration // from the end of the fault to the engine's first answer
	Healthy  time.Duration // from the end of the fault until every replica reports the engine healthy; 0: never
	Others   int           // healthy engines that a replica avoided during the fault
}

// faultsRun is a running RunFaults.
type faultsRun struct {
	*group
	out  *FaultsSummary
	load *workload.Paced
}

// RunFaults applies the faults to one engine after the other under a steady load through Envoy, and
// measures the effect on clients. All processes have ended when it returns.
func RunFaults(ctx context.Context, o Options, sharing rig.Sharing, cases []FaultCase) (*FaultsSummary, error) {
	o.Rate, o.Slots = cmp.Or(o.Rate, faultRate), cmp.Or(o.Slots, faultSlots)
	if o.Replicas == 1 {
		sharing = rig.Off
	}
	f := &faultsRun{out: &FaultsSummary{Engines: o.Engines, Replicas: o.Replicas, Sharing: sharing, Rate: o.Rate}}
	err := o.stage(ctx, QualityCase{Sharing: sharing}, func(g *group) error {
		f.group = g
		f.load = workload.StartPaced(g.URL, o.Rate)
		defer f.load.Stop()
		return f.play(ctx, cases)
	})
	switch {
	case ctx.Err() != nil:
		return nil, ErrInterrupted
	case err != nil:
		return nil, fmt.Errorf("demo: %w", err)
	}
	return f.out, nil
}

func (f *faultsRun) play(ctx context.Context, cases []FaultCase) (err error) {
	fmt.Fprintln(f.o.Out, FaultsHeader())
	if err := pause(cmp.Or(f.o.Warm, faultWarm))(ctx); err != nil {
		return err
	}
	if f.out.All, err = f.calm(ctx); err != nil {
		return err
	}
	last := f.Fleet.Engines()[f.o.Engines-1]
	if err := f.Fleet.WriteEndpoints(f.Dir+"/endpoints.yaml", last.Name()); err != nil {
		return err
	}
	if err := pause(faultGrace)(ctx); err != nil {
		return err
	}
	begun := time.Now()
	for range faultWindows {
		w, err := f.calm(ctx)
		if err != nil {
			return err
		}
		f.out.Windows = append(f.out.Windows, w.P90)
	}
	slices.Sort(f.out.Windows)
	f.out.Fewer = f.load.Between(begun, time.Now())
	if err := f.Fleet.WriteEndpoints(f.Dir + "/endpoints.yaml"); err != nil {
		return err
	}
	for i, c := range cases {
		if err := pause(faultCalm)(ctx); err != nil {
			return err
		}
		row, err := f.one(ctx, c, f.Fleet.Engines()[i%f.o.Engines])
		if err != nil {
			return err
		}
		f.out.Rows = append(f.out.Rows, *row)
		fmt.Fprintln(f.o.Out, f.out.line(row))
	}
	return nil
}

// calm measures without a fault, for the length of a fault.
func (f *faultsRun) calm(ctx context.Context) (workload.Span, error) {
	begun := time.Now()
	err := pause(faultLasts - faultGrace)(ctx)
	return f.load.Between(begun, time.Now()), err
}

// one applies a fault to an engine, removes it, and waits until the engine is in use again.
func (f *faultsRun) one(ctx context.Context, c FaultCase, e *sim.Engine) (*FaultRow, error) {
	row := &FaultRow{Case: c}
	sick := []*sim.Engine{e}
	if c.Poison { // kills any engine
		sick = f.Fleet.Engines()
	}
	begun := time.Now()
	for _, e := range sick {
		e.SetFaults(c.Faults)
	}
	watch := func(now time.Time) {
		if c.Poison {
			f.load.Poison(now)
		}
		states := f.states()
		if n := passedOver(states, e.Addr(), row); n == len(f.List) && row.Found == 0 {
			row.Found = now.Sub(begun)
		}
		if !c.Poison {
			row.Others = max(row.Others, others(states, e.Addr()))
		}
	}
	err := f.every(ctx, faultLasts, func(now time.Time) bool { watch(now); return false })
	ended := time.Now()
	for _, e := range sick {
		e.SetFaults(faults.Faults{})
	}
	if err != nil {
		return nil, err
	}
	err = f.every(ctx, faultBack, func(now time.Time) bool {
		if row.Healthy == 0 && f.trusted() {
			row.Healthy = now.Sub(ended)
		}
		row.Answered = f.load.FirstFrom(e.Name(), ended)
		return row.Healthy > 0 && row.Answered > 0
	})
	row.First, row.Rest = f.load.Between(begun, begun.Add(faultGrace)), f.load.Between(begun.Add(faultGrace), ended)
	return row, err
}

// every calls do several times a second, for the given time or until do returns true.
func (f *faultsRun) every(ctx context.Context, long time.Duration, do func(now time.Time) (enough bool)) error {
	for end := time.Now().Add(long); time.Now().Before(end); {
		if do(time.Now()) {
			return nil
		}
		if err := pause(200 * time.Millisecond)(ctx); err != nil {
			return err
		}
	}
	return nil
}

// states returns the status of every replica.
func (f *faultsRun) states() (list []*rig.Status) {
	for _, p := range f.List {
		if st, err := p.Status(); err == nil {
			list = append(list, st)
		}
	}
	return list
}

// passedOver counts the replicas that avoid the engine, and records the cause that they report.
func passedOver(states []*rig.Status, address string, row *FaultRow) (n int) {
	for _, st := range states {
		for _, e := range st.Endpoints {
			if e.Address == address && e.Health.State != "healthy" && e.Health.State != "returning" {
				n++
				row.Cause = e.Health.Cause
			}
		}
	}
	return n
}

// others returns the largest number of engines, besides the one at address, that a replica avoids.
func others(states []*rig.Status, address string) (most int) {
	for _, st := range states {
		n := 0
		for _, e := range st.Endpoints {
			if e.Address != address && e.Health.State == "out" {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// trusted reports whether every replica reports every engine as healthy.
func (f *faultsRun) trusted() bool {
	states := f.states()
	for _, st := range states {
		for _, e := range st.Endpoints {
			if e.Health.State != "healthy" {
				return false
			}
		}
	}
	return len(states) == len(f.List)
}
