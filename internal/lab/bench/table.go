package bench

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"
)

// WriteTable writes the rows as an aligned table, sorted by name.
func WriteTable(w io.Writer, rows []Row) error {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tab, "value\tunit\t  name")
	for _, r := range sorted(rows) {
		fmt.Fprintf(tab, "%v\t%s\t  %s\n", r.Value, r.Unit, r.Name)
	}
	return tab.Flush()
}

// WriteReports writes one line for each report, as an aligned table.
func WriteReports(w io.Writer, reports []Report) error {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tab, "mode\tload\tbody\tendpoints\trequests\trefused\tfailed\treq/s\tp50\tp90\tp99\tp99.9\tCPU/req\tRSS\t")
	for _, r := range reports {
		o, a := r.Options, r.Answer
		cpu, rss := "-", "-"
		if o.PID != 0 {
			cpu, rss = fmt.Sprintf("%.0f us", micros(r.CPUPerRequest())), fmt.Sprintf("%.0f MB", megabytes(r.RSS))
		}
		fmt.Fprintf(tab, "%s\t%s\t%s\t%d\t%d\t%d\t%d\t%.0f\t%.0f us\t%.0f us\t%.0f us\t%.0f us\t%s\t%s\t\n",
			o.Mode, o.load(), size(o.BodySize), o.Endpoints, r.Requests, r.Refused, r.Failed, r.Throughput(),
			micros(a.P50), micros(a.P90), micros(a.P99), micros(a.P999), cpu, rss)
	}
	return tab.Flush()
}

// Merge returns the rows of all lists, sorted by name; of rows with the same
// name the last counts.
func Merge(lists ...[]Row) []Row {
	last := map[string]Row{}
	for _, list := range lists {
		for _, r := range list {
			last[r.Name] = r
		}
	}
	rows := make([]Row, 0, len(last))
	for _, r := range last {
		rows = append(rows, r)
	}
	return sorted(rows)
}

func sorted(rows []Row) []Row {
	return slices.SortedFunc(slices.Values(rows), func(a, b Row) int { return cmp.Compare(a.Name, b.Name) })
}

// WriteJSON replaces the file with the rows as a JSON list, one row per line. A reader sees the old
// file or the new one.
func WriteJSON(path string, rows []Row) error {
	var b bytes.Buffer
	b.WriteString("[\n")
	for i, r := range rows {
		line, err := json.Marshal(r)
		if err != nil {
			return fmt.Errorf("bench: row %s: %w", r.Name, err)
		}
		if i > 0 {
			b.WriteString(",\n")
		}
		b.Write(line)
	}
	b.WriteString("\n]\n")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	if err := os.WriteFile(path+".new", b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	return nil
}

// ReadJSON reads the output of WriteJSON.
func ReadJSON(path string) ([]Row, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	var rows []Row
	if err := json.Unmarshal(b, &rows); err != nil {
		return nil, fmt.Errorf("bench: %s: %w", path, err)
	}
	return rows, nil
}
