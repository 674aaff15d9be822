package report

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/replay"
	"github.com/grapevine-epp/grapevine/internal/lab/sweep"
)

// Figure is one quantity of a report.
type Figure struct {
	Key   string // in CSV
	Label string // in tables and plots
	Of    func(*replay.Result) float64
	Digit int // decimals in tables
}

// Figures are the quantities of reports, in order.
var Figures = []Figure{
	{"ttft_mean_s", "TTFT mean", func(r *replay.Result) float64 { return r.TTFT.Mean }, 2},
	{"ttft_p50_s", "p50", func(r *replay.Result) float64 { return r.TTFT.P50 }, 2},
	{"ttft_p90_s", "p90", func(r *replay.Result) float64 { return r.TTFT.P90 }, 2},
	{"ttft_p99_s", "p99", func(r *replay.Result) float64 { return r.TTFT.P99 }, 2},
	{"tpot_mean_ms", "TPOT ms", func(r *replay.Result) float64 { return r.TPOT.Mean * 1e3 }, 1},
	{"tpot_p50_ms", "p50", func(r *replay.Result) float64 { return r.TPOT.P50 * 1e3 }, 1},
	{"tpot_p90_ms", "p90", func(r *replay.Result) float64 { return r.TPOT.P90 * 1e3 }, 1},
	{"tpot_p99_ms", "p99", func(r *replay.Result) float64 { return r.TPOT.P99 * 1e3 }, 1},
	{"e2e_mean_s", "E2E mean", func(r *replay.Result) float64 { return r.E2E.Mean }, 1},
	{"e2e_p50_s", "p50", func(r *replay.Result) float64 { return r.E2E.P50 }, 1},
	{"e2e_p90_s", "p90", func(r *replay.Result) float64 { return r.E2E.P90 }, 1},
	{"e2e_p99_s", "p99", func(r *replay.Result) float64 { return r.E2E.P99 }, 1},
	{"hit_ratio", "hit", func(r *replay.Result) float64 { return r.HitRatio }, 3},
	{"imbalance", "imbalance", func(r *replay.Result) float64 { return r.Imbalance }, 2},
	{"requests_per_s", "req/s", func(r *replay.Result) float64 { return r.Throughput }, 2},
	{"tokens_per_s", "tok/s", func(r *replay.Result) float64 { return r.Tokens }, 0},
	{"completed", "in time", func(r *replay.Result) float64 { return r.Completed }, 3},
	{"preempted", "preempted", func(r *replay.Result) float64 { return float64(r.Preempted) }, 0},
	{"goodput", "goodput", func(r *replay.Result) float64 { return r.Goodput }, 3},
	{"blast_radius", "blast", func(r *replay.Result) float64 { return r.Blast }, 2},
	{"errors", "errors", func(r *replay.Result) float64 { return float64(r.Errors) }, 0},
}

// better reports whether a is better than b. The figure decides whether more or less is better.
func (f Figure) better(a, b float64) bool {
	switch f.Key {
	case "hit_ratio", "requests_per_s", "tokens_per_s", "completed", "goodput":
		return a > b
	}
	return a < b
}

// FigureByKey returns the figure with the key.
func FigureByKey(key string) (Figure, bool) {
	for _, f := range Figures {
		if f.Key == key {
			return f, true
		}
	}
	return Figure{}, false
}

// Mean returns the mean of a figure over the row's seeds, NaN when it has no
// runs.
func mean(r *sweep.Row, f Figure) float64 {
	sum, n := 0.0, 0
	for _, run := range r.Runs {
		if run != nil {
			sum += f.Of(run)
			n++
		}
	}
	if n == 0 {
		return math.NaN()
	}
	return sum / float64(n)
}

// span returns the least and the greatest value of a figure over the row's runs.
func span(r *sweep.Row, f Figure) (lo, hi float64, runs int) {
	lo, hi = math.Inf(1), math.Inf(-1)
	for _, run := range r.Runs {
		if run != nil {
			lo, hi, runs = min(lo, f.Of(run)), max(hi, f.Of(run)), runs+1
		}
	}
	return lo, hi, runs
}

// shareText formats a sharing delay.
func shareText(replicas int, d time.Duration) string {
	switch {
	case replicas == 1:
		return "-"
	case d < 0:
		return "cut"
	}
	return d.String()
}

// loadText formats a load.
func loadText(c *sweep.Cell) string {
	if c.Load == 0 {
		return "own"
	}
	return strconv.FormatFloat(c.Load, 'g', 4, 64)
}

func columns(c *sweep.Cell) []string {
	return []string{
		c.Source, loadText(c), strconv.FormatFloat(c.Rate, 'f', 2, 64), c.Fleet,
		strconv.Itoa(c.Blocks), strconv.Itoa(c.Replicas), shareText(c.Replicas, c.Share), c.Policy,
	}
}

var cellColumns = []string{"workload", "load", "rate", "engines", "blocks", "replicas", "share", "policy"}

// tableFigures are the figures that fit into a table on a terminal.
var tableFigures = []string{
	"ttft_mean_s", "ttft_p50_s", "ttft_p90_s", "ttft_p99_s", "tpot_mean_ms", "tpot_p90_ms", "e2e_mean_s", "e2e_p90_s",
	"goodput", "hit_ratio", "blast_radius", "imbalance", "requests_per_s", "tokens_per_s", "errors",
}

// Report is the result of a sweep.
type Report struct {
	Rows  []sweep.Row
	Seeds []uint64
	About []string // description of the replayed cases, a line each
}

// WriteTable writes rows as text: the description, then one paragraph for each load with means over
// seeds, in seconds. Some figures show the smallest and largest value in brackets. Times of agent
// runs, times to first token by prompt size and results by tenant follow.
func (r *Report) WriteTable(w io.Writer) error {
	for _, line := range r.About {
		fmt.Fprintln(w, line)
	}
	if err := writeTable(w, r.Rows); err != nil {
		return err
	}
	return errors.Join(writePrograms(w, r.Rows), writeSizes(w, r.Rows), writeTenants(w, r.Rows))
}

func writeTable(w io.Writer, rows []sweep.Row) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	head := strings.Join(cellColumns, "\t")
	for _, key := range tableFigures {
		f, _ := FigureByKey(key)
		head += "\t" + f.Label
	}
	fmt.Fprintln(t, head+"\t")
	for i := range rows {
		r := &rows[i]
		if i > 0 && (rows[i-1].Source != r.Source || rows[i-1].Load != r.Load) {
			fmt.Fprintln(t, strings.Repeat("\t", len(cellColumns)+len(tableFigures)))
		}
		line := strings.Join(columns(&r.Cell), "\t")
		for _, key := range tableFigures {
			f, _ := FigureByKey(key)
			line += "\t" + strconv.FormatFloat(mean(r, f), 'f', f.Digit, 64)
			if lo, hi, n := span(r, f); n > 1 && (f.Key == "ttft_p90_s" || f.Key == "ttft_p99_s" || f.Key == "tpot_mean_ms") {
				line += fmt.Sprintf(" [%.*f %.*f]", f.Digit, lo, f.Digit, hi)
			}
		}
		fmt.Fprintln(t, line+"\t")
	}
	return t.Flush()
}

// CSVHeader returns the names of the columns of WriteCSV.
func CSVHeader() []string {
	head := append(append([]string(nil), cellColumns...), "seed", "requests")
	for _, f := range Figures {
		head = append(head, f.Key)
	}
	return head
}

// WriteCSV writes the header and one line for every run, with all figures.
func (r *Report) WriteCSV(w io.Writer) error {
	c := csv.NewWriter(w)
	if err := c.Write(CSVHeader()); err != nil {
		return err
	}
	c.Flush()
	return r.AppendCSV(w)
}

// AppendCSV is WriteCSV without the header.
func (r *Report) AppendCSV(w io.Writer) error {
	rows, seeds := r.Rows, r.Seeds
	c := csv.NewWriter(w)
	for i := range rows {
		for k, run := range rows[i].Runs {
			if run == nil {
				continue
			}
			line := append(columns(&rows[i].Cell), strconv.FormatUint(seeds[k], 10), strconv.Itoa(run.Requests))
			line[2] = strconv.FormatFloat(rows[i].Rate, 'g', -1, 64) // a matrix repeats the same rates
			for _, f := range Figures {
				line = append(line, strconv.FormatFloat(f.Of(run), 'g', 6, 64))
			}
			if err := c.Write(line); err != nil {
				return err
			}
		}
	}
	c.Flush()
	return c.Error()
}

// WriteJSON writes seeds, rows and the description.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(struct {
		About []string    `json:"about,omitempty"`
		Seeds []uint64    `json:"seeds"`
		Rows  []sweep.Row `json:"rows"`
	}{r.About, r.Seeds, r.Rows})
}
