package report

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"text/tabwriter"
)

// Run is one line of a CSV file.
type Run struct {
	Source, Fleet, Policy, Replicas string
	Load, Rate                      float64
	Seed                            string
	Figures                         map[string]float64 // by key
}

// SameRun reports whether o has the same cell, policy and seed.
func (r *Run) SameRun(o Run) bool {
	return r.Source == o.Source && r.Fleet == o.Fleet && r.Policy == o.Policy && r.Replicas == o.Replicas && r.Load == o.Load && r.Seed == o.Seed
}

// ReadCSV reads the output of WriteCSV and AppendCSV.
func ReadCSV(r io.Reader) ([]Run, error) {
	records, err := csv.NewReader(r).ReadAll()
	if err != nil || len(records) == 0 {
		return nil, err
	}
	at := map[string]int{}
	for i, name := range records[0] {
		at[name] = i
	}
	for _, name := range CSVHeader() {
		if _, ok := at[name]; !ok {
			return nil, fmt.Errorf("no column %s", name)
		}
	}
	var out []Run
	for n, line := range records[1:] {
		run := Run{
			Source: line[at["workload"]], Fleet: line[at["engines"]], Policy: line[at["policy"]], Replicas: line[at["replicas"]],
			Seed: line[at["seed"]], Figures: map[string]float64{},
		}
		for key, into := range map[string]*float64{"load": &run.Load, "rate": &run.Rate} {
			if *into, err = strconv.ParseFloat(line[at[key]], 64); err != nil {
				return nil, fmt.Errorf("line %d: %w", n+2, err)
			}
		}
		for _, f := range Figures {
			if run.Figures[f.Key], err = strconv.ParseFloat(line[at[f.Key]], 64); err != nil {
				return nil, fmt.Errorf("line %d: %w", n+2, err)
			}
		}
		out = append(out, run)
	}
	return out, nil
}

// place is a cell of a matrix.
type place struct {
	source, fleet, replicas string
	load                    float64
}

func (p place) String() string {
	return fmt.Sprintf("%s\t%s\t%.0f%%\t%s", p.source, p.fleet, 100*p.load, p.replicas)
}

// verdict compares the policy with others in one place, by figure.
type verdict struct {
	place
	seeds       int
	own         [3]float64
	ratio       [3]float64 // to the better one of the two baselines
	all         [3]float64 // to the best of all others
	against     map[string][3]float64
	good, blast float64
}

// judged are the compared figures, with a constant that is added to both sides of a ratio, because
// ratios of tiny times are meaningless.
var judged = [3]struct {
	key    string
	little float64
}{{"ttft_p90_s", .005}, {"ttft_p99_s", .005}, {"tpot_mean_ms", .5}}

// seedFigures are the figures of one run: logarithms of the judged ones, goodput and blast radius.
type seedFigures [5]float64

// Verdicts compares a policy with load_only, unified, and all others in every place of a matrix,
// and writes the comparisons, worst first. Figures are geometric means over seeds; ratios use the
// seeds that both policies have.
func Verdicts(w io.Writer, runs []Run, policy string) error {
	places := map[place]map[string]map[string]seedFigures{} // by policy and seed
	for i := range runs {
		r := &runs[i]
		p := place{r.Source, r.Fleet, r.Replicas, r.Load}
		if places[p] == nil {
			places[p] = map[string]map[string]seedFigures{}
		}
		if places[p][r.Policy] == nil {
			places[p][r.Policy] = map[string]seedFigures{}
		}
		v := seedFigures{3: r.Figures["goodput"], 4: r.Figures["blast_radius"]}
		for k, f := range judged {
			v[k] = math.Log(r.Figures[f.key] + f.little)
		}
		places[p][r.Policy][r.Seed] = v
	}
	var list []verdict
	for p, by := range places {
		if v, ok := judge(p, by, policy); ok {
			list = append(list, v)
		}
	}
	slices.SortFunc(list, func(a, b verdict) int {
		return cmp.Or(-cmp.Compare(slices.Max(a.ratio[:]), slices.Max(b.ratio[:])), cmp.Compare(a.String(), b.String()))
	})
	return writeVerdicts(w, list, policy)
}

func judge(p place, by map[string]map[string]seedFigures, policy string) (v verdict, ok bool) {
	own := by[policy]
	v = verdict{place: p, seeds: len(own), against: map[string][3]float64{}}
	for name, other := range by {
		if r, ok := ratios(own, other); ok && name != policy {
			v.against[name] = r
			for k := range judged {
				v.all[k] = max(v.all[k], r[k])
			}
		}
	}
	one, ok1 := v.against["load_only"]
	two, ok2 := v.against["unified"]
	if !ok1 || !ok2 {
		return v, false
	}
	for _, f := range own {
		for k := range judged {
			v.own[k] += f[k] / float64(len(own))
		}
		v.good, v.blast = v.good+f[3]/float64(len(own)), v.blast+f[4]/float64(len(own))
	}
	for k := range judged {
		v.own[k] = math.Exp(v.own[k]) - judged[k].little
		v.ratio[k] = max(one[k], two[k])
	}
	return v, true
}

// ratios returns the geometric means of the judged figures relative to another policy, over common
// seeds.
func ratios(own, other map[string]seedFigures) (out [3]float64, ok bool) {
	n := 0.0
	for seed, f := range own {
		g, both := other[seed]
		if !both {
			continue
		}
		n++
		for k := range out {
			out[k] += f[k] - g[k]
		}
	}
	for k := range out {
		out[k] = math.Exp(out[k] / n)
	}
	return out, n > 0
}

// heldTo is the largest ratio at which a cell passes.
const heldTo = 1.05

func writeVerdicts(w io.Writer, list []verdict, policy string) error {
	fmt.Fprintf(w, "%s, %d cells; p90 and p99 of the time to first token, and time per token\n", policy, len(list))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	others := policies(list)
	fmt.Fprintf(t, "\tcells\tat most %.2f times the better baseline\tand the best of all others\t", heldTo)
	for _, name := range others {
		fmt.Fprintf(t, "mean over %s\t", name)
	}
	fmt.Fprintln(t)
	for _, part := range partsOf(list) {
		writeSum(t, part, list, others)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	fmt.Fprintln(t, "workload\tengines\tload\treplicas\tseeds\tp90 s\tp99 s\tTPOT ms\tratio p90\tp99\tTPOT\tgoodput\tblast\t")
	for i := range list {
		v := &list[i]
		fmt.Fprintf(t, "%s\t%d\t%.2f\t%.2f\t%.1f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t\n", v.place, v.seeds, v.own[0], v.own[1], v.own[2], v.ratio[0], v.ratio[1], v.ratio[2], v.good, v.blast)
	}
	return t.Flush()
}

// policies returns the other policies of the comparison.
func policies(list []verdict) []string {
	all := map[string]bool{}
	for i := range list {
		for name := range list[i].against {
			all[name] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// part is a subset of the cells with its own summary.
type part struct {
	name string
	of   func(place) bool
}

// partsOf returns all cells, and the cells of each load level, engine kind, number of replicas and
// workload.
func partsOf(list []verdict) []part {
	out := []part{{"all", func(place) bool { return true }}, {"load up to 85%", func(p place) bool { return p.load <= .85 }}}
	for _, by := range []func(place) string{
		func(p place) string { return fmt.Sprintf("load %.0f%%", 100*p.load) },
		func(p place) string { return p.fleet },
		func(p place) string { return p.replicas + " replicas" },
		func(p place) string { return p.source },
	} {
		names := map[string]bool{}
		for i := range list {
			names[by(list[i].place)] = true
		}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			out = append(out, part{name, func(p place) bool { return by(p) == name }})
		}
	}
	return out
}

// writeSum writes the number of held cells of a part, and geometric means relative to others over
// common cells.
func writeSum(w io.Writer, p part, list []verdict, others []string) {
	var cells int
	var held, within [3]int
	sums, seen := map[string][3]float64{}, map[string]float64{}
	for i := range list {
		v := &list[i]
		if !p.of(v.place) {
			continue
		}
		cells++
		for k := range judged {
			held[k] += yes(v.ratio[k] <= heldTo)
			within[k] += yes(v.all[k] <= heldTo)
		}
		for name, r := range v.against {
			sum := sums[name]
			for k := range judged {
				sum[k] += math.Log(r[k])
			}
			sums[name] = sum
			seen[name]++
		}
	}
	if cells == 0 {
		return
	}
	fmt.Fprintf(w, "%s\t%d\t%d / %d / %d\t%d / %d / %d\t", p.name, cells, held[0], held[1], held[2], within[0], within[1], within[2])
	for _, name := range others {
		if seen[name] == 0 {
			fmt.Fprint(w, "-\t")
			continue
		}
		s, n := sums[name], seen[name]
		fmt.Fprintf(w, "%.2f / %.2f / %.2f\t", math.Exp(s[0]/n), math.Exp(s[1]/n), math.Exp(s[2]/n))
	}
	fmt.Fprintln(w)
}

func yes(b bool) int {
	if b {
		return 1
	}
	return 0
}
