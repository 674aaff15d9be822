package picker_test

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"net/netip"
	"os"
	"path"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
	"github.com/grapevine-epp/grapevine/picker/flow/gate"
	"github.com/grapevine-epp/grapevine/picker/flow/rules"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// recorder implements what the stages call, and records the stage that calls it: the file of the
// innermost function of package picker on the stack.
type recorder struct {
	picker.Gate
	second *request.Request
	queued chan struct{} // closed when the second request waits

	mu    sync.Mutex
	lines []string
}

// record adds a line for the stage that called the recorder, unless it is the request's last line.
func (rec *recorder) record(second bool, detail string) {
	pcs := make([]uintptr, 64)
	frames, stage, entered := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)]), "", false
	for {
		f, more := frames.Next()
		if dir, name := path.Split(f.File); strings.HasSuffix(dir, "/picker/") && !strings.HasSuffix(name, "_test.go") {
			if stage == "" {
				stage = strings.TrimSuffix(name, ".go")
			}
			entered = entered || strings.HasSuffix(f.Function, "Scheduler).serve") || strings.HasSuffix(f.Function, "flight).release")
		}
		if !more {
			break
		}
	}
	if !entered {
		stage += " without the stages before"
	}
	line := stage + detail
	if second {
		line = fmt.Sprintf("%-18s%s", "", line)
	}
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if n := len(rec.lines); n == 0 || rec.lines[n-1] != line {
		rec.lines = append(rec.lines, line)
	}
}

// Enter implements picker.Gate.
func (rec *recorder) Enter(ctx context.Context, r *request.Request) (picker.Permit, picker.QueueEntry, error) {
	p, entry, err := rec.Gate.Enter(ctx, r)
	if entry == nil {
		rec.record(r == rec.second, ": permit")
		return p, nil, err
	}
	rec.record(r == rec.second, ": queued")
	close(rec.queued)
	return p, entryRecorder{entry, rec}, err
}

type entryRecorder struct {
	picker.QueueEntry
	rec *recorder
}

// Wait implements picker.QueueEntry.
func (e entryRecorder) Wait(ctx context.Context, most time.Duration) (bool, error) {
	waits, err := e.QueueEntry.Wait(ctx, most)
	if !waits && err == nil {
		e.rec.record(true, ": permit")
	}
	return waits, err
}

// Leave implements picker.Gate.
func (rec *recorder) Leave(p picker.Permit, service float64) {
	rec.mu.Lock()
	second := slices.ContainsFunc(rec.lines, func(line string) bool { return line == "observe" })
	rec.mu.Unlock()
	rec.record(second, "")
	rec.Gate.Leave(p, service)
}

// Fill implements picker.Prompts.
func (rec *recorder) Fill(_ context.Context, r *request.Request) { rec.record(r == rec.second, "") }

// Release implements picker.Prompts.
func (*recorder) Release(*request.Request) {}

// Handle implements cycle.ProfileHandler.
func (rec *recorder) Handle(c *cycle.Cycle, plan *cycle.Plan) error {
	rec.record(c.Request == rec.second, "")
	plan.Order = append(plan.Order, 0)
	return nil
}

// Match, Chosen and Finished implement picker.Matcher.
func (*recorder) Match(context.Context, *request.Request, []*endpoint.Endpoint, []cycle.PrefixMatch) {
}

func (rec *recorder) Chosen(r *request.Request, _ *endpoint.Endpoint) {
	rec.record(r == rec.second, "")
}

func (*recorder) Finished(*request.Request, *endpoint.Endpoint, cycle.PrefixMatch, request.Outcome) {
}

// answer is a picker.Rules.Answer.
func (rec *recorder) answer(c *cycle.Cycle, _ int32) []request.HeaderSet {
	rec.record(c.Request == rec.second, "")
	return nil
}

// headersRecorder records the stage that reads a request's headers.
type headersRecorder struct {
	rec    *recorder
	second bool
}

// Get implements request.Headers.
func (h headersRecorder) Get(string) string {
	h.rec.record(h.second, "")
	return ""
}

// logRecorder records the stage that logs the path of a request.
type logRecorder struct {
	slog.Handler
	rec *recorder
}

// Enabled implements slog.Handler.
func (logRecorder) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (l logRecorder) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		l.rec.record(a.Value.String() == "/second", "")
		return true
	})
	return nil
}

// TestStages records the stages that two requests pass, of which one waits for the permit of the
// other, and compares them with the drawing in ARCHITECTURE.md. It also compares the table of
// stages with the declared methods.
func TestStages(t *testing.T) {
	pool := endpoint.NewPool(endpoint.PoolOptions{})
	pool.Set([]endpoint.Spec{
		{Addr: netip.MustParseAddrPort("10.0.0.1:8000"), Models: []string{"a"}}, {Addr: netip.MustParseAddrPort("10.0.0.2:8000"), Models: []string{"b"}},
	})
	g, err := gate.New(gate.Options{Pool: pool})
	if err != nil {
		t.Fatal(err)
	}
	g.Configure(&gate.Config{Sizing: rules.Sizing{Unit: rules.Requests, Requests: 1}, Queue: func() rules.Options { return rules.Options{} }})
	if _, entry, err := g.Enter(t.Context(), &request.Request{}); entry != nil || err != nil { // leaves one permit
		t.Fatalf("first permit: %v, %v", entry, err)
	}
	rec := &recorder{Gate: g, second: &request.Request{Path: "/second", NoModel: true}, queued: make(chan struct{})}
	s, err := picker.New(picker.Options{
		Pool: pool, Gate: rec, Prompts: rec, Matcher: rec, Log: slog.New(logRecorder{slog.DiscardHandler, rec}),
		Rules: &picker.Rules{Handler: rec, Answer: rec.answer, Sessions: []request.SessionSource{{Header: "session"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	first := &request.Request{Path: "/first", NoModel: true, Headers: headersRecorder{rec, false}}
	rec.second.Headers = headersRecorder{rec, true}
	d, err := s.Choose(t.Context(), first)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		d, err := s.Choose(t.Context(), rec.second)
		if err != nil {
			t.Error(err)
			return
		}
		d.Done(request.Outcome{Status: 200, Complete: true})
	}()
	select {
	case <-rec.queued:
	case <-done:
		t.Error("second request did not wait")
	}
	d.Done(request.Outcome{Status: 200, Complete: true})
	<-done

	page, err := os.ReadFile("../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, drawing, _ := strings.Cut(string(page), "first request     second request\n")
	drawing, _, _ = strings.Cut(drawing, "```")
	if diff := cmp.Diff(strings.Split(strings.TrimSuffix(drawing, "\n"), "\n"), rec.lines); diff != "" {
		t.Errorf("ARCHITECTURE.md shows other stages than the recorded ones (-page +recorded):\n%s", diff)
	}
	var stages []string
	for _, m := range regexp.MustCompile("(?m)^\\| `picker/([a-z]+)\\.go` \\| (?:`([A-Za-z]+)`)? ?\\| ").FindAllStringSubmatch(string(page), -1) {
		if stages = append(stages, m[1]); m[2] == "" {
			continue
		}
		if got := resultOf(t, m[1]); got != m[2] {
			t.Errorf("stage %s returns %s, in ARCHITECTURE.md %s", m[1], got, m[2])
		}
	}
	var recorded []string
	for _, line := range rec.lines {
		name, _, _ := strings.Cut(strings.TrimSpace(line), ":")
		if !slices.Contains(recorded, name) {
			recorded = append(recorded, name)
		}
	}
	if diff := cmp.Diff(recorded, stages); diff != "" {
		t.Errorf("the table in ARCHITECTURE.md lists other stages (-recorded +table):\n%s", diff)
	}
}

// resultOf returns the type of the first result of Scheduler's method of a stage, which must be in
// the file of that name.
func resultOf(t *testing.T, stage string) string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), stage+".go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Name.Name == stage && f.Recv != nil {
			switch typ := f.Type.Results.List[0].Type.(type) {
			case *ast.Ident:
				return typ.Name
			case *ast.StarExpr:
				switch typ := typ.X.(type) {
				case *ast.Ident:
					return typ.Name
				case *ast.SelectorExpr:
					return typ.Sel.Name
				}
			}
		}
	}
	return "nothing"
}
