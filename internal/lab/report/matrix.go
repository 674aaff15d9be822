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

// SameRun reports whether o is of the same cell, policy and seed.
func (r *Run) SameRun(o Run) bool {
	return r.Source == o.Source && r.Fleet == o.Fleet && r.Policy == o.Policy && r.Replicas == o.Replicas && r.Load == o.Load && r.Seed == o.Seed
}

// ReadCSV reads what WriteCSV and AppendCSV wrote.
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

// verdict is how the policy did in a place against others, by figure.
type verdict struct {
	place
	seeds       int
	own         [3]float64
	ratio       [3]float64 // to the better of the two baselines
	all         [3]float64 // to the best of all others
	against     map[string][3]float64
	good, blast float64
}

// judged are the figures that count, and what is added on both sides of a ratio:
// of tiny times it says nothing.
var judged = [3]struct {
	key    string
	little float64
}{{"ttft_p90_s", .005}, {"ttft_p99_s", .005}, {"tpot_mean_ms", .5}}

// Verdicts compares a policy with load_only and unified in every place of a
// matrix and writes all of them, the worst first. Figures are geometric means
// over seeds.
func Verdicts(w io.Writer, runs []Run, policy string) error {
	means := map[place]map[string][]float64{}
	seeds := map[place]map[string]bool{}
	for i := range runs {
		r := &runs[i]
		p := place{r.Source, r.Fleet, r.Replicas, r.Load}
		if means[p] == nil {
			means[p], seeds[p] = map[string][]float64{}, map[string]bool{}
		}
		seeds[p][r.Seed] = true
		v := means[p][r.Policy]
		if v == nil {
			v = make([]float64, 6)
		}
		for k, f := range judged {
			v[k] += math.Log(r.Figures[f.key] + f.little)
		}
		v[3], v[4], v[5] = v[3]+1, v[4]+r.Figures["goodput"], v[5]+r.Figures["blast_radius"]
		means[p][r.Policy] = v
	}
	var list []verdict
	for p, by := range means {
		if v, ok := judge(p, by, policy); ok {
			v.seeds = len(seeds[p])
			list = append(list, v)
		}
	}
	slices.SortFunc(list, func(a, b verdict) int {
		return cmp.Or(-cmp.Compare(slices.Max(a.ratio[:]), slices.Max(b.ratio[:])), cmp.Compare(a.String(), b.String()))
	})
	return writeVerdicts(w, list, policy)
}

func judge(p place, by map[string][]float64, policy string) (v verdict, ok bool) {
	of := func(name string, k int) float64 {
		if m := by[name]; m != nil {
			return math.Exp(m[k] / m[3])
		}
		return math.Inf(1)
	}
	own := by[policy]
	if own == nil || by["load_only"] == nil || by["unified"] == nil {
		return v, false
	}
	v = verdict{place: p, against: map[string][3]float64{}, good: own[4] / own[3], blast: own[5] / own[3]}
	for k := range judged {
		v.own[k] = of(policy, k) - judged[k].little
		v.ratio[k] = of(policy, k) / min(of("load_only", k), of("unified", k))
		best := math.Inf(1)
		for name := range by {
			if name == policy {
				continue
			}
			best = min(best, of(name, k))
			a := v.against[name]
			a[k] = of(policy, k) / of(name, k)
			v.against[name] = a
		}
		v.all[k] = of(policy, k) / best
	}
	return v, true
}

// heldTo is the ratio up to which a place counts as held.
const heldTo = 1.05

func writeVerdicts(w io.Writer, list []verdict, policy string) error {
	var held, low, all, within [3]int
	var sums [3]map[string]float64
	for k := range sums {
		sums[k] = map[string]float64{}
	}
	for i := range list {
		for k := range judged {
			if list[i].load <= .85 {
				low[k]++
				held[k] += yes(list[i].ratio[k] <= heldTo)
			}
			all[k]++
			within[k] += yes(list[i].all[k] <= heldTo)
			for name, r := range list[i].against {
				sums[k][name] += math.Log(r[k]) / float64(len(list))
			}
		}
	}
	fmt.Fprintf(w, "%s, %d cells; p90 and p99 of the time to first token, and time per token\n", policy, len(list))
	fmt.Fprintf(w, "at most %.2f times the better of load_only and unified, load up to 85%%: %d, %d, %d of %d\n", heldTo, held[0], held[1], held[2], low[0])
	fmt.Fprintf(w, "at most %.2f times the best of all others, any load: %d, %d, %d of %d\n", heldTo, within[0], within[1], within[2], all[0])
	for _, name := range slices.Sorted(maps.Keys(sums[0])) {
		fmt.Fprintf(w, "geometric mean over %s: %.3f, %.3f, %.3f\n", name, math.Exp(sums[0][name]), math.Exp(sums[1][name]), math.Exp(sums[2][name]))
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "workload\tengines\tload\treplicas\tseeds\tp90 s\tp99 s\tTPOT ms\tratio p90\tp99\tTPOT\tgoodput\tblast\t")
	for i := range list {
		v := &list[i]
		fmt.Fprintf(t, "%s\t%d\t%.2f\t%.2f\t%.1f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t\n", v.place, v.seeds, v.own[0], v.own[1], v.own[2], v.ratio[0], v.ratio[1], v.ratio[2], v.good, v.blast)
	}
	return t.Flush()
}

func yes(b bool) int {
	if b {
		return 1
	}
	return 0
}
