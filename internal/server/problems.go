package server

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/internal/cli"
	"github.com/grapevine-epp/grapevine/internal/flightrecorder"
	"github.com/grapevine-epp/grapevine/internal/knowledge"
	"github.com/grapevine-epp/grapevine/internal/modelfiles"
	"github.com/grapevine-epp/grapevine/internal/problems"
	"github.com/grapevine-epp/grapevine/internal/ticks"
	"github.com/grapevine-epp/grapevine/picker/discovery"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/health"
)

// symptoms are facts about a replica that its status does not show elsewhere.
type symptoms struct {
	stalled       []string // names of stalled loops
	logLost       uint64   // log lines lost in the last minutes
	certificate   string   // warning about its expiry
	memory        string   // why memory runs out soon
	tracing       string   // why spans cannot be exported
	late          string   // why the replica is out of service for lack of processor time
	poolUnhealthy string   // health problem of a whole model or role
	noDecode      string
	noPrefill     string
	unknownRole   string
	differences   []problems.Item // properties that differ within pairs
	rights        []string        // missing rules for finding the group's members
}

func (r *reporter) symptoms() symptoms {
	eps := r.Pool.Snapshot().Endpoints
	sy := symptoms{
		stalled: r.Dog.Stalled(), logLost: r.Problems.logLost.Load(), certificate: r.Certificate.Warning(), memory: r.Problems.memory(), tracing: r.Tracer.Failing(),
		poolUnhealthy: poolProblem(r.Pool), noDecode: r.Condition.undecodable(), unknownRole: unknownRole(eps),
		noPrefill: noPrefill(eps), differences: differences(eps, r.Served.Version), late: r.Condition.Pace.slow(),
	}
	if r.MissingRights != nil {
		sy.rights = r.MissingRights()
	}
	return sy
}

// reachTime is how long after its start a replica reports endpoints that it could not reach.
const reachTime = 20.0

// findProblems returns the problems of a replica with this status, the most urgent first. It sets
// the problems of endpoints.
func findProblems(st *Status, sy symptoms) []problems.Found {
	var l problems.List
	findReplicaProblems(&l, st, &sy)
	findGroupProblems(&l, st)
	if sy.poolUnhealthy != "" {
		l.Add(problems.PoolUnhealthy, "", sy.poolUnhealthy)
	}
	for i := range st.Endpoints {
		e := &st.Endpoints[i]
		e.Problems = nil
		add := func(code problems.Code, detail string) {
			l.Add(code, e.Address, detail)
			e.Problems = append(e.Problems, code)
		}
		findHealthProblems(add, e, st.UptimeS)
		findKnowledgeProblems(add, e)
		slices.SortFunc(e.Problems, problems.Compare)
		e.Problems = slices.Compact(e.Problems)
	}
	findModelProblems(&l, st)
	findPluginProblems(&l, st)
	findListProblems(&l, st, &sy)
	findPairProblems(&l, st, &sy)
	for i := range st.Queues {
		if q := &st.Queues[i]; q.Waiting > 0 {
			l.Add(problems.Saturated, q.Model, fmt.Sprintf("%d requests wait at this replica", q.Waiting))
		}
	}
	if found := l.Found(); found != nil {
		return found
	}
	return []problems.Found{}
}

func findReplicaProblems(l *problems.List, st *Status, sy *symptoms) {
	switch {
	case st.State == "draining":
		l.Add(problems.Draining, "", "")
	case st.State == "starting" && sy.noDecode == "" && (len(st.Endpoints) > 0 || unread(&st.Discovery)): // else another code says why
		l.Add(problems.Starting, "", st.Reason)
	}
	if len(sy.stalled) > 0 {
		l.Add(problems.Stalled, "", strings.Join(sy.stalled, ", "))
	}
	if sy.logLost > 0 {
		l.Add(problems.LogLost, "", fmt.Sprintf("%d lines in the last minutes", sy.logLost))
	}
	if sy.certificate != "" {
		l.Add(problems.Certificate, "", sy.certificate)
	}
	if sy.memory != "" {
		l.Add(problems.Memory, "", sy.memory)
	}
	if sy.tracing != "" {
		l.Add(problems.Tracing, "", sy.tracing)
	}
	if sy.late != "" {
		l.Add(problems.Late, "", sy.late)
	}
	if sy.unknownRole != "" {
		l.Add(problems.UnknownRole, "", sy.unknownRole)
	}
	if sy.noDecode != "" {
		l.Add(problems.NoDecode, "", sy.noDecode)
	}
}

// pairProblems are the codes of pairs that are off, by state.
var pairProblems = map[string]problems.Code{
	endpoint.PairNothing.String(): problems.PairNothing, endpoint.PairTransfer.String(): problems.PairFails,
	endpoint.PairLate.String(): problems.PairFails, endpoint.PairSlow.String(): problems.PairSlow,
}

func findPairProblems(l *problems.List, st *Status, sy *symptoms) {
	if sy.noPrefill != "" {
		l.Add(problems.NoPrefill, "", sy.noPrefill)
	}
	for _, d := range sy.differences {
		l.Add(problems.PairDiffers, d.Subject, d.Detail)
	}
	if st.PD == nil {
		return
	}
	for i := range st.PD.Pairs {
		p := &st.PD.Pairs[i]
		if code, off := pairProblems[p.State]; off {
			l.Add(code, p.Prefill+" and "+p.Decode, fmt.Sprintf("%d of %d split requests failed, average gain %.0f ms", p.Failed, p.Worked+p.Failed, 1000*p.AverageS))
		}
	}
}

// groupProblems are the codes of unhealthy group states.
var groupProblems = map[string]problems.Code{
	"partitioned": problems.Partitioned, "alone": problems.Alone, "misconfigured": problems.Settings, "degraded": problems.Releases,
	"joining": problems.Joining, "leaving": problems.Leaving,
}

func findGroupProblems(l *problems.List, st *Status) {
	if code, bad := groupProblems[st.Cluster.State]; bad && (!st.Cluster.OK || st.Cluster.State == "leaving") {
		l.Add(code, "", st.Cluster.Line)
	}
	findClockProblems(l, st)
	if st.Federation == nil {
		return
	}
	for _, c := range st.Federation.Clusters {
		if c.State != "live" {
			l.Add(problems.Remote, c.Name, cmp.Or(c.Reason, c.State))
		}
	}
}

// clockLimit is the difference of two replicas' clocks, beyond the error of its measurement, that is a
// problem.
const clockLimit = 1.0 // seconds

func findClockProblems(l *problems.List, st *Status) {
	var differ []problems.Item
	compared, ahead := 0, 0
	for i := range st.Members {
		m := &st.Members[i]
		if m.ClockAheadS == nil || m.State != "up" {
			continue
		}
		compared++
		if math.Abs(*m.ClockAheadS)-m.ClockWithinS <= clockLimit {
			continue
		}
		side := "ahead of"
		if *m.ClockAheadS < 0 {
			side = "behind"
		} else {
			ahead++
		}
		by := time.Duration(math.Abs(*m.ClockAheadS) * float64(time.Second))
		differ = append(differ, problems.Item{Subject: m.Name, Detail: fmt.Sprintf("its clock is %s %s this replica's", by.Round(100*time.Millisecond), side)})
	}
	if n := len(differ); n > 1 && n == compared && (ahead == 0 || ahead == n) {
		side := "behind"
		if ahead == 0 {
			side = "ahead of"
		}
		l.Add(problems.Clocks, st.Name, fmt.Sprintf("this replica's clock is %s those of all %d other members; %s", side, n, differ[0].String()))
		return
	}
	for _, d := range differ {
		l.Add(problems.Clocks, d.Subject, d.Detail)
	}
}

func findHealthProblems(add func(problems.Code, string), e *EndpointStatus, uptime float64) {
	h := &e.Health
	switch h.State {
	case health.Out.String(), health.Probing.String():
		add(cmp.Or(problems.OfCause(h.Cause), problems.Failing), h.State+": "+h.Evidence)
	case health.Suspect.String():
		add(problems.Suspect, h.Evidence)
	case health.Returning.String():
		add(problems.Returning, h.Evidence)
	case health.Unreached:
		if uptime > reachTime {
			add(problems.Unreached, cmp.Or(e.GaugesError, "no data from it yet"))
		}
	default:
		if !e.Up {
			add(problems.Refused, "connections are refused")
		}
	}
	if h.FullS > 0 {
		add(problems.Full, fmt.Sprintf("avoided for another %.1f s", h.FullS))
	}
	if len(h.AvoidedModels) > 0 {
		add(problems.ModelFails, strings.Join(h.AvoidedModels, ", "))
	}
	if h.AvoidedOthers > 0 {
		add(problems.ModelFails, fmt.Sprintf("%d clients or kinds of request", h.AvoidedOthers))
	}
	if e.GaugesError != "" && h.State == health.Healthy.String() && e.Up { // otherwise its health says more
		add(problems.NoGauges, e.GaugesError)
	}
}

// knowledgeProblems are the codes of states of knowledge that are not exact.
var knowledgeProblems = map[string]problems.Code{
	knowledge.Unknown.String(): problems.Approximate, knowledge.Approximate.String(): problems.Approximate,
	knowledge.Unreadable.String(): problems.Unreadable, knowledge.CatchingUp.String(): problems.CatchingUp,
	knowledge.Mismatched.String(): problems.Mismatched, knowledge.Partial.String(): problems.Partial,
}

func findKnowledgeProblems(add func(problems.Code, string), e *EndpointStatus) {
	if e.Health.State != health.Healthy.String() || !e.Up {
		return
	}
	if e.StreamError != "" {
		add(problems.StreamLost, e.StreamError)
		return
	}
	if code, imperfect := knowledgeProblems[e.Knowledge]; imperfect {
		add(code, e.Reason)
	}
}

func findModelProblems(l *problems.List, st *Status) {
	for i := range st.Models {
		if m := &st.Models[i]; m.Error != "" {
			l.Add(problems.ModelFiles, m.Name, m.Error)
		}
	}
	for i := range st.ModelFiles {
		if m := &st.ModelFiles[i]; m.State != modelfiles.StateReady && m.State != modelfiles.StatePending {
			l.Add(problems.ModelFiles, m.Model, string(m.State)+": "+cmp.Or(m.Remedy, m.Error))
		}
	}
	if st.NoModel > 0 {
		l.Add(problems.UnknownModel, "", fmt.Sprintf("%d requests since the start", st.NoModel))
	}
	if m := &st.Modelless; m.Requests > 0 {
		l.Add(problems.Modelless, "", fmt.Sprintf("%d requests since the start, of %s", m.Requests, strings.Join(m.Paths, ", ")))
	}
}

// unread reports whether the list of endpoints is being read for the first time.
func unread(d *discovery.Status) bool {
	return d.From != "" && (d.State == discovery.StateUnread || d.State == discovery.StateCurrent && d.Read.IsZero())
}

func findPluginProblems(l *problems.List, st *Status) {
	for i := range st.Plugins {
		if p := &st.Plugins[i]; p.Failing != "" {
			l.Add(problems.Plugin, p.Name, p.Failing)
		}
	}
}

func findListProblems(l *problems.List, st *Status, sy *symptoms) {
	d := &st.Discovery
	why := d.Reason()
	if len(st.Endpoints) == 0 && st.State != "draining" && !unread(d) {
		l.Add(problems.NoEndpoint, "", cmp.Or(why, d.From+" names no endpoint"))
	}
	switch {
	case d.From == "" || unread(d) || d.State == discovery.StateEmpty:
	case len(d.Unresolved) > 0:
		for host, err := range d.Unresolved {
			l.Add(problems.BadEntry, host, err)
		}
	case !d.OK():
		l.Add(problems.StaleList, d.From, why)
	}
	for _, p := range d.Invalid {
		l.Add(problems.BadEntry, "", p.String())
	}
	for _, rule := range append(slices.Clone(d.MissingRights), sy.rights...) {
		l.Add(problems.Rights, d.From, rule)
	}
	if st.Config.Problem != "" {
		first, _, _ := strings.Cut(st.Config.Problem, "\n")
		l.Add(problems.Config, "", first)
	}
	if st.Served.Problem != "" {
		l.Add(problems.NotFollowed, "", st.Served.Problem)
	}
}

// Intervals of the watch for problems.
const (
	problemInterval = 2 * time.Second
	problemShare    = 100 // at most 1/problemShare of one processor, up to problemMost between looks
	problemMost     = 10 * time.Second
	logLostTime     = 5 * time.Minute
)

// problemWatch is the state of the watch for problems. It exports their number.
type problemWatch struct {
	found   atomic.Pointer[[]problems.Found]
	logLost atomic.Uint64
	low     atomic.Pointer[string] // why memory runs out soon
	needed  atomic.Int64           // bytes; see budget.Needed
}

// memory returns why memory runs out soon, or "".
func (w *problemWatch) memory() string {
	if p := w.low.Load(); p != nil {
		return *p
	}
	return ""
}

var problemsDesc = prometheus.NewDesc("grapevine_problems", "Subjects that have a problem now, by its code: engines, members, models or the replica itself; the runbook has each code.", []string{"code"}, nil)

var neededDesc = prometheus.NewDesc("grapevine_memory_needed_bytes", "Memory of the process that garbage collection cannot return. Compare it with grapevine_memory_budget_bytes{use=\"process\"}.", nil, nil)

// Describe implements prometheus.Collector.
func (w *problemWatch) Describe(ch chan<- *prometheus.Desc) {
	ch <- problemsDesc
	ch <- neededDesc
}

// Collect implements prometheus.Collector. Every code that a replica can find has a series, so that
// an alert ends.
func (w *problemWatch) Collect(ch chan<- prometheus.Metric) {
	if n := w.needed.Load(); n > 0 {
		ch <- prometheus.MustNewConstMetric(neededDesc, prometheus.GaugeValue, float64(n))
	}
	count := map[problems.Code]int{}
	if found := w.found.Load(); found != nil {
		for _, f := range *found {
			count[f.Code] = f.Count
		}
	}
	for _, p := range problems.Table {
		if p.Source == problems.Replica {
			ch <- prometheus.MustNewConstMetric(problemsDesc, prometheus.GaugeValue, float64(count[p.Code]), string(p.Code))
		}
	}
}

// watch looks for problems until ctx ends. It logs when one begins and when it ends, and requests
// flight records.
func (w *problemWatch) watch(ctx context.Context, r *reporter, flight *flightrecorder.Recorder, writer *cli.LogWriter, memory *budget.Budget, log *slog.Logger) {
	since := map[problems.Code]time.Time{}
	var lost lossCounter
	var health healthRecorder
	var forecast memoryForecast
	t := time.NewTimer(problemInterval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		start := time.Now()
		if writer != nil {
			w.logLost.Store(lost.add(writer.Dropped(), start))
		}
		needed := budget.Needed()
		low := forecast.add(start, needed, memory.Ceiling())
		w.needed.Store(needed)
		w.low.Store(&low)
		st := r.status()
		health.see(&st, r.Condition.Pace.slow(), flight)
		found := st.Problems
		w.found.Store(&found)
		logProblems(log, since, found, start)
		t.Reset(problemRest(time.Since(start)))
	}
}

// problemRest returns the time until the next look, after one that took some time. That time includes waits
// for a processor: without a limit, a replica that was short of processor time for seconds would report old
// problems for minutes.
func problemRest(took time.Duration) time.Duration {
	if rest := min(problemShare*took, problemMost); rest > problemInterval {
		return rest
	}
	return ticks.Until(problemInterval)
}

// lossCounter counts losses until none has been added for logLostTime.
type lossCounter struct {
	total, recent uint64
	last          time.Time
}

// add sets the total, and returns the recent losses.
func (c *lossCounter) add(total uint64, now time.Time) uint64 {
	if total > c.total {
		c.recent += total - c.total
		c.total, c.last = total, now
	}
	if now.Sub(c.last) > logLostTime {
		c.recent = 0
	}
	return c.recent
}

// logProblems logs the differences to the problems that existed before, which are in since.
func logProblems(log *slog.Logger, since map[problems.Code]time.Time, found []problems.Found, now time.Time) {
	present := map[problems.Code]bool{}
	for i := range found {
		f := &found[i]
		present[f.Code] = true
		if _, known := since[f.Code]; known {
			continue
		}
		since[f.Code] = now
		level := slog.LevelWarn
		if f.Severity == problems.Notice {
			level = slog.LevelInfo
		}
		log.Log(context.Background(), level, "problem began", "code", string(f.Code), "severity", string(f.Severity), "problem", f.Title, "count", f.Count, "detail", f.Summary())
	}
	for code, began := range since {
		if !present[code] {
			delete(since, code)
			log.Info("problem ended", "code", string(code), "after", now.Sub(began).Round(time.Second))
		}
	}
}
