//go:build hostile

package hostile

import (
	"cmp"
	"flag"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"
	"testing"
	"text/tabwriter"
	"time"
)

// row holds the results of one attack.
type row struct {
	name    string
	result  string
	peak    int64
	sockets int64 // in the kernel
	p99     time.Duration
	own     time.Duration      // of the program alone, without proxy and engines
	times   [2][]time.Duration // samples of p99 and own
	calm    [2]time.Duration   // p99 and own before and after, without an attack
	failed  int
	asked   int
	silent  time.Duration // without an answer to the other cluster
	refused string

	inside ownTimes

	idle, idleOwn time.Duration // the same with an idle picker; 0: not measured
}

// only selects attacks.
var only = flag.String("hostile.only", "", "regular expression: the attacks of TestHostile and TestSidecar that are run")

// part selects a part of the attacks, so that short runs cover every attack over several commits.
var part = flag.String("hostile.part", "1/1", "the part of the attacks that is run, such as 2/3: every third attack, from the second on; the first attacks, on memory and trust, always run")

// always is the number of attacks at the head of the list that every part runs.
const always = 4

// inPart reports whether the i-th attack belongs to the part.
func inPart(t *testing.T, i int) bool {
	t.Helper()
	var nth, parts int
	if _, err := fmt.Sscanf(*part, "%d/%d", &nth, &parts); err != nil || nth < 1 || nth > parts {
		t.Fatalf("-hostile.part %q is not like 2/3", *part)
	}
	return i%parts == nth-1
}

// alone selects among the selected attacks.
var alone = flag.String("hostile.idle", "^$", "regular expression: the attacks of TestHostile and TestSidecar that are run at an idle picker as well, to tell what honest requests wait for Envoy, gRPC and the machine")

var first = flag.Bool("hostile.first", false, "the program, and the process that asks it alone, have the processors before attackers, Envoy and engines, as they would on a machine of their own: what is left of the waiting is the program's doing")

// precedence returns the command prefix that raises the CPU priority with -hostile.first.
func precedence() []string {
	if *first {
		return []string{"nice", "-n", "-15"}
	}
	return nil
}

// TestHostile runs each attack together with honest requests. The program must stay alive within
// its memory, serve the honest requests, and count its refusals.
func TestHostile(t *testing.T) {
	r := openRig(t)
	rest := func() row { return r.beside(func() string { time.Sleep(3 * time.Second); return "" }) }
	calm := rest()
	calm.name = "(none)"
	rows := []row{calm}
	chosen, compared := regexp.MustCompile(*only), regexp.MustCompile(*alone)
	var idle before
	if *alone != "^$" {
		idle = r.openIdle()
		calm := r.idly(idle, func(*rig) string { time.Sleep(4 * time.Second); return "" })
		rows[0].idle, rows[0].idleOwn = calm.p99, calm.own
	}
	for i, a := range slices.Concat(attacks, strange, frames, clusters) {
		if !chosen.MatchString(a.name) || i >= always && !inPart(t, i) {
			continue
		}
		before := r.cage.counters()
		got := r.beside(func() string { return a.run(r) })
		got.name, got.refused = a.name, changes(before, r.cage.counters())
		if compared.MatchString(a.name) {
			same := r.idly(idle, a.run)
			got.idle, got.idleOwn = same.p99, same.own
		}
		after := rest()
		for i := range got.calm {
			got.calm[i] = slowest(slices.Concat(calm.times[i], after.times[i]))
		}
		calm = after
		rows = append(rows, got)
		if !r.cage.alive() {
			t.Errorf("%s: the program is dead; its log ends with\n%s", a.name, tail(r.cage.log.String()))
			break
		}
		if status := r.cage.get("/healthz"); status != http.StatusOK {
			t.Errorf("%s: /healthz answers %d", a.name, status)
		}
		if got.failed > 0 {
			t.Errorf("%s: %d of %d honest requests were not served", a.name, got.failed, got.asked)
		}
		if got.silent > 0 {
			t.Errorf("%s: another cluster did not hear this one for %v", a.name, got.silent)
		}
		if got.result != "" {
			t.Errorf("%s: %s", a.name, got.result)
		}
		if a.counted != "" && !strings.Contains(got.refused, a.counted) {
			t.Errorf("%s: nothing counts it: %s, want %s", a.name, got.refused, a.counted)
		}
	}
	if n := r.canary.asked.Load(); n > 0 {
		t.Errorf("%d requests were led to a foreign host", n)
	}
	if n := r.smuggled; n > 0 {
		t.Errorf("%d requests reached an engine with headers that only pickers may set", n)
	}
	t.Logf("512 MiB, held by: %s\n%s", r.cage.kind, table(rows))
	t.Logf("as in docs/security.md:\n%s", inDocs(rows))
	t.Logf("its own p99 is more than twice that without an attack: %s", strings.Join(beyondTwice(rows), "; "))
	r.withoutPicker()
}

// beside runs an attack while honest requests are sent.
func (r *rig) beside(attack func() string) row {
	r.cage.calm()
	inside := r.cage.inside()
	r.people.tell(order{Do: "ask", Front: r.front}, &struct{}{})
	r.prober.tell(order{Do: "ask", Pick: r.pickAt}, &struct{}{})
	if *profiles != "" {
		at := filepath.Join(*profiles, fmt.Sprintf("cpu-%d", time.Now().Unix()))
		go func() { _ = r.cage.save("/debug/pprof/profile?seconds=2", at) }() // a partial profile is fine
	}
	began := time.Now()
	result := attack()
	if left := 2*time.Second - time.Since(began); left > 0 {
		time.Sleep(left)
	}
	var of, own asked
	r.people.tell(order{Do: "stop"}, &of)
	r.prober.tell(order{Do: "stop"}, &own)
	of.Own = own.Own
	r.smuggled = of.Smuggled
	got := row{times: [2][]time.Duration{of.Times, of.Own}, failed: of.Failed, asked: len(of.Times), silent: of.Silent}
	got.p99, got.own = slowest(slices.Clone(of.Times)), slowest(slices.Clone(of.Own))
	got.result, got.peak, got.sockets = cmp.Or(result, r.cage.uncomfortable()), r.cage.peak.Load(), r.cage.sockets.Load()
	got.inside = r.cage.inside().since(inside)
	return got
}

// withoutPicker ends the program. Envoy then routes requests itself and must ignore clients'
// routing headers.
func (r *rig) withoutPicker() {
	r.cage.end(r.t)
	for range 8 {
		r.post("/v1/completions", []byte(`{"model":"x","prompt":"a"}`), "x-gateway-destination-endpoint", r.addr(r.canary.URL))
	}
	if n := r.canary.asked.Load(); n > 0 {
		r.t.Errorf("without a picker, a client's header led %d requests to a host of its choice", n)
	}
}

// interesting are the counters of refusals.
var interesting = []string{
	"grapevine_extproc_requests_total", "grapevine_extproc_shed_total", "grapevine_memory_budget_refused_total", "grapevine_connections_closed_total",
	"grapevine_admin_refused_total", "grapevine_extproc_streams_total", "grapevine_prompts_missed_total", "grapevine_extproc_stripped", "grapevine_federation_refused_total", "grapevine_federation_paced_total",
}

// changes lists the counters that grew, except counters of placed requests.
func changes(before, after map[string]float64) string {
	var out []string
	for name, n := range after {
		for _, want := range interesting {
			if strings.HasPrefix(name, want) && n > before[name] && !strings.Contains(name, `"placed"`) && !strings.Contains(name, `"complete"`) {
				out = append(out, fmt.Sprintf("%s +%g", strings.TrimPrefix(name, "grapevine_"), n-before[name]))
			}
		}
	}
	sort.Strings(out)
	return strings.Join(out, ", ")
}

func table(rows []row) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "attack\tpeak MiB\tsockets\thonest requests\tnot served\tp99 ms\tits own, ms\tcalm\tits own\tidle picker\tits own\tchosen p90, ms\tworked s\twaited s\tcounted")
	ms := func(d time.Duration) string { return fmt.Sprintf("%.1f", d.Seconds()*1e3) }
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%.3g\t%.2f\t%.2f\t%s\n", r.name, r.peak>>20, r.sockets>>20, r.asked, r.failed, ms(r.p99), ms(r.own), ms(r.calm[0]), ms(r.calm[1]), ms(r.idle), ms(r.idleOwn), r.inside.chosen*1e3, r.inside.worked.Seconds(), r.inside.waited.Seconds(), r.refused)
	}
	_ = w.Flush()
	return b.String()
}

// inDocs formats rows as the table of docs/security.md.
func inDocs(rows []row) string {
	out := "| attack | peak, MiB | sockets, MiB | honest p99, ms | calm | its own, ms | calm |\n|---|--:|--:|--:|--:|--:|--:|\n"
	ms := func(d time.Duration) string {
		if d == 0 {
			return "–"
		}
		return fmt.Sprintf("%.1f", d.Seconds()*1e3)
	}
	for _, r := range rows {
		out += fmt.Sprintf("| %s | %d | %d | %s | %s | %s | %s |\n", r.name, r.peak>>20, r.sockets>>20, ms(r.p99), ms(r.calm[0]), ms(r.own), ms(r.calm[1]))
	}
	return out
}

// beyondTwice lists the attacks during which the program's own time was more than twice the time
// without an attack, with the factor.
func beyondTwice(rows []row) (list []string) {
	for _, r := range rows {
		if calm := r.calm[1]; calm > 0 && r.own > 2*calm {
			list = append(list, fmt.Sprintf("%s (%.1f)", r.name, float64(r.own)/float64(calm)))
		}
	}
	return list
}

func tail(s string) string { return s[max(0, len(s)-4000):] }
