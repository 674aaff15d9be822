package gate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/bench"
	"github.com/grapevine-epp/grapevine/internal/prompt"
)

// Options select the rows that Run measures.
type Options struct {
	Config

	Short  bool           // the short form only
	Rows   *regexp.Regexp // names of rows; nil: all
	Rounds int            // per row; 24
	Out    io.Writer      // progress: one line per row
	Stored *Baseline      // rows that look worse than stored are measured again; may be nil

	// Reference returns the program grapevine as of the stored commit, in a folder that also has
	// grapevine-lab. Rows of CPU per request are compared directly with this program, since ratios
	// against the no-op rise on a loaded machine. So are kernels that look worse than stored.
	Reference func(context.Context) (string, error)
}

// Measured is the result of a Run.
type Measured struct {
	Rows    []Result
	Profile []Share // CPU shares of one replica by function
}

// session is one run.
type session struct {
	Options
	ctx   context.Context
	model *prompt.Model
	noop  *member
	old   *running // the group's stand with the program of the stored commit; nil until needed
	out   Measured
}

// Run measures the selected rows.
func Run(ctx context.Context, o Options) (Measured, error) {
	if o.Rounds == 0 {
		o.Rounds = 24
	}
	s := &session{Options: o, ctx: ctx}
	var err error
	if s.model, err = prompt.Load(o.Model, prompt.Options{Name: Model}); err != nil {
		return s.out, err
	}
	if err := s.kernels(); err != nil {
		return s.out, err
	}
	runtime.GC()
	if s.noop, err = startNoop(ctx, o.Config); err != nil {
		return s.out, err
	}
	defer s.noop.Kill()
	for i := range groups {
		if err := s.measureGroup(&groups[i]); err != nil {
			return s.out, fmt.Errorf("%s: %w", groups[i].name, err)
		}
	}
	return s.out, nil
}

// wants reports whether the row is selected.
func (s *session) wants(name string) bool { return s.Rows == nil || s.Rows.MatchString(name) }

// add appends a row and prints it.
func (s *session) add(r Result) {
	s.out.Rows = append(s.out.Rows, r)
	direct := ""
	if r.Direct != nil {
		direct = fmt.Sprintf(", directly %.3f ± %.3f", r.Direct.Median, r.Direct.Error)
	}
	fmt.Fprintf(s.Out, "%-26s %9.4g %-14s quartiles %.4g-%.4g, error %.2g, n %d%s%s\n", r.Name, r.Estimate.Median, r.Unit,
		r.Estimate.Low, r.Estimate.High, r.Estimate.Error, r.Estimate.N, s.Stored.remark(r), direct)
}

func (s *session) level(name, unit string, kind Kind, value float64) {
	s.add(Result{Name: name, Kind: kind, Unit: unit, Estimate: Estimate{Median: value, Low: value, High: value, N: 1}})
}

func result(name string, kind Kind, unit string, samples []float64) Result {
	return Result{Name: name, Kind: kind, Unit: unit, Estimate: estimate(samples)}
}

// again reports whether samples look worse than the stored figure, so more samples are needed.
func (s *session) again(name string, samples []float64) bool {
	if s.Stored == nil {
		return false
	}
	stored, ok := s.Stored.row(name)
	return ok && estimate(samples).Median > stored.Value*(1+Tolerance/2)
}

func (s *session) kernels() error {
	sizes := allPools
	if s.Short {
		sizes = shortPools
	}
	list, err := kernels(s.ctx, s.Config.Model, sizes)
	if err != nil {
		return err
	}
	for _, k := range list {
		if s.wants(k.Name) {
			err = s.kernel(k)
		}
		k.stop()
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *session) kernel(k *Kernel) error {
	const slice = 15 * time.Millisecond
	samples, allocs, err := k.measureFresh(2*s.Rounds, slice)
	if err != nil {
		return err
	}
	for tries := 0; tries < 2 && s.again(k.Name, samples); tries++ {
		more, _, err := k.measureFresh(4*s.Rounds, slice)
		if err != nil {
			return err
		}
		samples = append(samples, more...)
	}
	row := result(k.Name, Ratio, "x calibration", samples)
	if s.Stored.worse(row) != "" && s.Reference != nil {
		if err := s.kernelDirect(k, slice, &row); err != nil {
			return err
		}
	}
	s.add(row)
	if strings.HasPrefix(k.Name, "decision/") {
		s.level(k.Name+"/allocations", "per decision", Count, allocs)
	}
	return nil
}

// kernelDirect compares a kernel with that of the stored commit, run after run. Caches and memory of
// a loaded machine slow large kernels down more than the calibration loop.
func (s *session) kernelDirect(k *Kernel, slice time.Duration, row *Result) error {
	picker, err := s.Reference(s.ctx)
	if err != nil {
		return err
	}
	lab := filepath.Join(filepath.Dir(picker), "grapevine-lab")
	none := filepath.Join(s.Dir, "none.json") // stored figures would make it repeat the row
	if err := os.WriteFile(none, []byte("{}"), 0o600); err != nil {
		return err
	}
	const runs, rounds = 5, 8
	var direct []float64
	for range runs {
		run := exec.CommandContext(s.ctx, lab, "gate", "--full", "--baseline", none, "--rounds", strconv.Itoa(rounds), "--rows", "^"+regexp.QuoteMeta(k.Name)+"$")
		run.Stderr = os.Stderr
		out, err := run.Output()
		if err != nil {
			return fmt.Errorf("%s at the stored commit: %w", k.Name, err)
		}
		was, err := printedMedian(string(out), k.Name)
		if err != nil {
			return err
		}
		now, _, err := k.measureFresh(2*rounds, slice)
		if err != nil {
			return err
		}
		direct = append(direct, estimate(now).Median/was)
	}
	e := estimate(direct)
	row.Direct = &e
	return nil
}

// printedMedian returns the figure of a row in the output of a run.
func printedMedian(out, name string) (float64, error) {
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == name {
			return strconv.ParseFloat(f[1], 64)
		}
	}
	return 0, fmt.Errorf("gate: no row %s in %q", name, out)
}

// measureGroup starts the group's stand if one of its rows is selected.
func (s *session) measureGroup(g *group) error {
	loads := make([]load, 0, len(g.loads))
	for _, l := range g.loads {
		if (l.short || !s.Short) && s.wants(g.name+"/"+l.name) {
			loads = append(loads, l)
		}
	}
	more := g.short
	if !s.Short {
		more = append(more[:len(more):len(more)], g.extra...)
	}
	if s.Rows != nil && !s.Rows.MatchString(g.name) {
		more = nil
	}
	if len(loads)+len(more) == 0 {
		return nil
	}
	r, err := s.begin(g)
	if err != nil {
		return err
	}
	defer func() { s.end(r) }()
	if high, err := memory(r.members[0].pid(), "VmHWM"); err == nil && g.name == "8x8" && s.wants("memory/start") {
		s.level("memory/start", "MB", Level, high)
	}
	for _, l := range loads {
		row, err := s.load(r, g.name+"/"+l.name, l)
		if err == nil && row.Direct != nil && s.Stored.worse(row) != "" {
			r, row, err = s.secondOpinion(r, g, l, row)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
		s.add(row)
	}
	for _, f := range more {
		if err := f(s, r); err != nil {
			return err
		}
	}
	return nil
}

// begin starts the group's stand.
func (s *session) begin(g *group) (*running, error) {
	r, err := g.stand.start(s.ctx, s.Config, s.model)
	if err != nil {
		return nil, err
	}
	// until the replica has read the model list of every endpoint
	if _, err := measureIdle(s.ctx, nil, time.Duration(g.stand.Endpoints)*5*time.Millisecond); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// end stops a stand and its reference.
func (s *session) end(r *running) {
	r.close()
	if s.old != nil {
		s.old.close()
		s.old = nil
	}
}

// secondOpinion measures a row that is worse once more, with new processes, and returns the better
// result with the new stand. Two processes of one program differ by several percent, for example in
// the layout of their memory; a real change shows both times.
func (s *session) secondOpinion(r *running, g *group, l load, first Result) (*running, Result, error) {
	again, err := s.begin(g)
	if err != nil {
		return r, first, err
	}
	s.end(r)
	row, err := s.load(again, g.name+"/"+l.name, l)
	if err != nil || first.Direct.Median < row.Direct.Median {
		return again, first, err
	}
	return again, row, nil
}

// open connects a client for the load.
func (s *session) open(target string, o bench.Options) (*bench.Client, error) {
	o.Target, o.TLS, o.Model = target, bench.SelfSigned(), Model
	return bench.Open(s.ctx, o)
}

// pair opens the load at the no-op and at the first member of a stand.
func (s *session) pair(r *running, o bench.Options) (plays []*play, err error) {
	for _, m := range []*member{s.noop, r.members[0]} {
		c, err := s.open(m.extProc, o)
		if err != nil {
			closeAll(plays)
			return nil, err
		}
		p := &play{client: c, pids: []int{m.pid()}}
		plays = append(plays, p)
	}
	if err := r.store(s.ctx, o, plays[1].client); err != nil {
		closeAll(plays)
		return nil, err
	}
	plays[1].idle, err = measureIdle(s.ctx, plays[1].pids, time.Second)
	if err != nil {
		closeAll(plays)
	}
	return plays, err
}

func closeAll(plays []*play) {
	for _, p := range plays {
		p.client.Close()
	}
}

// batches limits how often load repeats its rounds while a row is uncertain.
const batches = 4

// load measures one row of CPU per request. With a reference it also compares the replica with one
// of the stored commit, slice by slice, until the verdict is certain.
func (s *session) load(r *running, name string, l load) (Result, error) {
	plays, err := s.pair(r, l.opts)
	if err != nil {
		return Result{}, err
	}
	defer func() { closeAll(plays) }()
	now := plays[1]
	was, err := s.earlier(r, l)
	if err != nil {
		return Result{}, err
	}
	if was != nil {
		plays = append(plays, was)
	}
	n := s.Rounds
	if l.slice > time.Second {
		n = max(n/2, 1) // long slices vary less
	}
	var samples, direct []float64
	row := Result{}
	for range batches {
		err = rounds(s.ctx, n, l.slice, plays, func() {
			samples = append(samples, now.cost[0]/plays[0].cost[0])
			if was != nil {
				direct = append(direct, now.cost[0]/was.cost[0])
			}
		})
		if err != nil {
			return row, err
		}
		row = result(name, Ratio, "x no-op", samples)
		if was == nil {
			break
		}
		e := estimate(direct)
		if row.Direct = &e; e.certain() {
			break
		}
	}
	if s.Stored.worse(row) != "" && was != nil {
		if row.Grown, err = s.growth(r.members[0], now.client, was.client, row.Direct.Median); err != nil {
			return row, err
		}
	}
	return row, nil
}

// growth takes CPU profiles of the replica and of the reference under the same load. It returns the
// functions whose CPU time per request grew; ratio is the replica's cost of a request over the
// reference's.
func (s *session) growth(m *member, now, was *bench.Client, ratio float64) ([]string, error) {
	before, err := s.profileOf(s.old.members[0], was)
	if err != nil {
		return nil, err
	}
	after, err := s.profileOf(m, now)
	if err != nil {
		return nil, err
	}
	for i := range after {
		after[i].Percent *= ratio
	}
	return grown(before, after), nil
}

// certain reports whether the estimate of a direct comparison is clear of the tolerance.
func (e Estimate) certain() bool {
	return math.Abs(e.Median-1-Tolerance) > 2*e.Error
}

// earlier opens the load at a replica of the stored commit; nil without a reference.
func (s *session) earlier(r *running, l load) (*play, error) {
	old, err := s.reference(r)
	if old == nil || err != nil {
		return nil, err
	}
	c, err := s.open(old.members[0].extProc, l.opts)
	if err != nil {
		return nil, err
	}
	was := &play{client: c, pids: []int{old.members[0].pid()}}
	if err = old.store(s.ctx, l.opts, c); err == nil {
		was.idle, err = measureIdle(s.ctx, was.pids, time.Second)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return was, nil
}

// reference starts the stand with the program of the stored commit; nil without one.
func (s *session) reference(r *running) (*running, error) {
	if s.Reference == nil {
		return nil, nil
	}
	self, err := s.Reference(s.ctx)
	if err != nil {
		return nil, err
	}
	if s.old == nil {
		conf := s.Config
		conf.Self = self
		s.old, err = r.Stand.start(s.ctx, conf, s.model)
	}
	return s.old, err
}

// firstDecision measures the start of a replica: CPU time and wall time from the start of the
// process to its first correct decision, which sends a prompt to the only engine that has it
// cached. Wall time is part of the full form only.
func (s *session) firstDecision(r *running) error {
	cpu, wall, err := s.starts(r)
	if err != nil {
		return err
	}
	row := result("start/cpu", Level, "s", cpu)
	if s.Stored.worse(row) != "" {
		old, err := s.reference(r)
		if err != nil {
			return err
		}
		if old != nil {
			was, _, err := s.starts(old)
			if err != nil {
				return err
			}
			e := Estimate{Median: row.Estimate.Median / estimate(was).Median, N: len(was)}
			row.Direct = &e
		}
	}
	s.add(row)
	if !s.Short {
		s.add(result("start/wall", Level, "s", wall))
	}
	return nil
}

// starts starts a replica five times. It returns the CPU seconds and the seconds of each start.
func (s *session) starts(r *running) (cpu, wall []float64, err error) {
	const holder, number = 3, 60 // engine without waiting requests; conversation that no load plays
	o := kb(40, 1)
	o.Conversations, o.Connections = number+4, 1
	bodies, err := s.open(s.noop.extProc, o)
	if err != nil {
		return nil, nil, err
	}
	text, _, err := r.model.Render(s.ctx, nil, bodies.Body(number), prompt.KindChat)
	bodies.Close()
	if err != nil {
		return nil, nil, err
	}
	r.engines.publishers[holder].Publish(encode(stored(r.engines.names, r.model.EncodeRendered(nil, text))))
	want := fmt.Sprintf("%s:%d", address(holder), r.engines.port)
	for i := range 5 {
		begun := time.Now()
		m, err := r.startMember(fmt.Sprint("start-", i))
		if err != nil {
			return nil, nil, err
		}
		err = s.correct(m, o, number, want)
		took := time.Since(begun)
		used, cpuErr := processCPU(m.pid())
		m.Kill()
		if err = errors.Join(err, cpuErr); err != nil {
			return nil, nil, err
		}
		cpu, wall = append(cpu, used.Seconds()), append(wall, took.Seconds())
	}
	return cpu, wall, nil
}

// correct waits until the member sends the prompt to the wanted engine.
func (s *session) correct(m *member, o bench.Options, number uint64, want string) error {
	ctx, cancel := context.WithTimeout(s.ctx, 2*time.Minute)
	defer cancel()
	var c *bench.Client
	for c == nil {
		var err error
		if c, err = s.open(m.extProc, o); err != nil && ctx.Err() != nil {
			return fmt.Errorf("gate: %s does not listen: %w", m.Name, err)
		}
	}
	defer c.Close()
	for {
		to, err := c.Destination(ctx, number)
		if to == want {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("gate: %s sends the prompt to %q, want %s: %w", m.Name, to, want, errors.Join(ctx.Err(), err))
		}
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// answerMessages counts the messages per streamed answer of 50 chunks, in the body modes of
// the resilient configuration, once the replica has seen many answers of each engine.
func (s *session) answerMessages(r *running) error {
	o := kb(1, 16)
	const event = 136
	o.Mode, o.ResponseSize, o.ResponseChunk, o.Rate = bench.Buffered, answerChunks*event, event, 200
	c, err := s.open(r.members[0].extProc, o)
	if err != nil {
		return err
	}
	defer c.Close()
	p := &play{client: c, pids: []int{r.members[0].pid()}}
	const name = "messages/answer"
	var sent []float64
	for tries := 0; tries < 3 && (tries == 0 || s.again(name, sent)); tries++ {
		if err := rounds(s.ctx, 5, 3*time.Second, []*play{p}, func() { sent = append(sent, p.sent) }); err != nil {
			return err
		}
	}
	s.add(result(name, Ratio, "messages", sent))
	return nil
}

// idleness counts wake-ups and CPU of a replica without requests.
func (s *session) idleness(r *running) error {
	woken, used, err := s.idle(r)
	if err != nil {
		return err
	}
	rows := []Result{result("idle/wake-ups", Level, "per second", woken), result("idle/cpu", Level, "cores", used)}
	if s.Stored.worse(rows[0]) != "" || s.Stored.worse(rows[1]) != "" {
		if err := s.idleDirect(r, rows); err != nil {
			return err
		}
	}
	for _, row := range rows {
		s.add(row)
	}
	return nil
}

// idleDirect compares idle replicas of both commits.
func (s *session) idleDirect(r *running, rows []Result) error {
	old, err := s.reference(r)
	if old == nil || err != nil {
		return err
	}
	var ratios [2][]float64
	for range 2 {
		woken, used, err := s.idle(r)
		if err != nil {
			return err
		}
		wokenThen, usedThen, err := s.idle(old)
		if err != nil {
			return err
		}
		for i := range woken {
			ratios[0] = append(ratios[0], woken[i]/wokenThen[i])
			ratios[1] = append(ratios[1], used[i]/usedThen[i])
		}
	}
	for i := range rows {
		e := estimate(ratios[i])
		rows[i].Direct = &e
	}
	return nil
}

// idle measures wake-ups and cores of idle replicas whose engines are quiet: means over the members.
func (s *session) idle(r *running) (woken, used []float64, err error) {
	// After heavy load the Go runtime returns memory for some seconds, in many small steps.
	const period, settle = 3 * time.Second, 15 * time.Second
	var pids []int
	for _, m := range r.members {
		pids = append(pids, m.pid())
	}
	r.engines.quiet.Store(true)
	defer r.engines.quiet.Store(false)
	if _, err := measureIdle(s.ctx, pids, settle); err != nil {
		return nil, nil, err
	}
	for range 4 {
		before, err := wakeUpsOf(pids)
		if err != nil {
			return nil, nil, err
		}
		cores, err := measureIdle(s.ctx, pids, period)
		if err != nil {
			return nil, nil, err
		}
		after, err := wakeUpsOf(pids)
		if err != nil {
			return nil, nil, err
		}
		spent := 0.
		for _, t := range cores.spent {
			spent += t
		}
		n := float64(len(pids))
		woken, used = append(woken, float64(after-before)/period.Seconds()/n), append(used, spent/cores.took/n)
	}
	return woken, used, nil
}

func wakeUpsOf(pids []int) (sum int, err error) {
	for _, pid := range pids {
		n, err := WakeUps(pid)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// groupIdleness counts wake-ups and CPU of a member of a group without requests.
func (s *session) groupIdleness(r *running) error {
	woken, used, err := s.idle(r)
	if err != nil {
		return err
	}
	s.add(result("group/idle/wake-ups", Level, "per second", woken))
	s.add(result("group/idle/cpu", Level, "cores", used))
	return nil
}

// reloadMemory has the replica read its models again.
func (s *session) reloadMemory(r *running) error {
	m := r.members[0]
	if err := m.Cmd.Process.Signal(syscall.SIGHUP); err != nil {
		return err
	}
	if _, err := measureIdle(s.ctx, []int{m.pid()}, 8*time.Second); err != nil {
		return err
	}
	high, err := memory(m.pid(), "VmHWM")
	if err == nil {
		s.level("memory/reload", "MB", Level, high)
	}
	return err
}

// streamMemory measures the memory of an open stream and compares it with the no-op's.
func (s *session) streamMemory(r *running) error {
	const streams = 1000
	var per [2]float64
	for i, m := range []*member{s.noop, r.members[0]} {
		o := kb(1, 16)
		o.Concurrency = streams
		c, err := s.open(m.extProc, o)
		if err != nil {
			return err
		}
		before, err := memory(m.pid(), "VmRSS")
		if err == nil {
			err = c.Hold(s.ctx)
		}
		var after float64
		if err == nil {
			after, err = memory(m.pid(), "VmRSS")
		}
		c.Close()
		if err != nil {
			return err
		}
		per[i] = (after - before) * 1024 / streams
	}
	s.level("memory/stream", "KB", Level, per[1])
	s.level("memory/stream/no-op", "KB", Level, per[0])
	return nil
}

// others measures a group at 100 requests per second. It compares the serving member with a
// single replica, and each other member with the no-op.
func (s *session) others(r *running) error {
	alone, err := Stand{Endpoints: 8, Holders: 8}.start(s.ctx, s.Config, s.model)
	if err != nil {
		return err
	}
	defer alone.close()
	for _, size := range []int{1, 40} {
		name := fmt.Sprintf("group/%dKB/100s", size)
		o := paced(size)
		plays, err := s.pair(alone, o)
		if err != nil {
			return err
		}
		c, err := s.open(r.members[0].extProc, o)
		if err != nil {
			return err
		}
		p := &play{client: c}
		for _, m := range r.members {
			p.pids = append(p.pids, m.pid())
		}
		plays = append(plays, p)
		err = r.store(s.ctx, o, c)
		if err == nil {
			p.idle, err = measureIdle(s.ctx, p.pids, 4*time.Second)
		}
		var serving, other []float64
		if err == nil {
			err = rounds(s.ctx, max(s.Rounds/2, 1), atPace, plays, func() {
				serving = append(serving, p.cost[0]/plays[1].cost[0])
				other = append(other, (p.cost[1]+p.cost[2])/2/plays[0].cost[0])
			})
		}
		closeAll(plays)
		if err != nil {
			return err
		}
		s.add(result(name+"/serving", Ratio, "x alone", serving))
		s.add(result(name+"/other", Ratio, "x no-op", other))
	}
	return nil
}

// profile takes a CPU profile of the replica under the load of 40 KB.
func (s *session) profile(r *running) error {
	o := kb(40, 16)
	c, err := s.open(r.members[0].extProc, o)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := r.store(s.ctx, o, c); err != nil {
		return err
	}
	list, err := s.profileOf(r.members[0], c)
	s.out.Profile = list[:min(len(list), keptShares)]
	return err
}

// profileOf takes a CPU profile of a replica under the client's load.
func (s *session) profileOf(m *member, c *bench.Client) ([]Share, error) {
	file := filepath.Join(s.Dir, "cpu.pprof")
	taken := make(chan error, 1)
	go func() { taken <- fetch(s.ctx, "http://"+m.admin+"/debug/pprof/profile?seconds=5", file) }()
	_, err := c.Play(s.ctx, 6*time.Second)
	if err := errors.Join(err, <-taken); err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return shares(raw)
}
