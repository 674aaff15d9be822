package bench

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// ParseGoBench reads the output of `go test -bench` and returns one row for each benchmark and
// unit: go_ns_per_op/indexer.Match/blocks=640. Package names are relative to module. A benchmark
// that ran several times gives the median. Other lines are ignored. A failed benchmark or package
// is an error.
func ParseGoBench(r io.Reader, module string) ([]Row, error) {
	p := goBench{module: module, values: map[string][]float64{}}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if err := p.line(lines.Text()); err != nil {
			return nil, err
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("bench: go test output: %w", err)
	}
	for i := range p.rows {
		values := p.values[p.rows[i].Name]
		slices.Sort(values)
		p.rows[i].Value = values[len(values)/2]
	}
	return p.rows, nil
}

type goBench struct {
	module string
	pkg    string
	cpu    string
	rows   []Row // in order of appearance
	values map[string][]float64
}

func (p *goBench) line(line string) error {
	switch {
	case strings.HasPrefix(line, "pkg: "):
		p.pkg = strings.TrimPrefix(strings.TrimPrefix(line, "pkg: "), p.module+"/")
	case strings.HasPrefix(line, "cpu: "):
		p.cpu = strings.TrimPrefix(line, "cpu: ")
	case strings.HasPrefix(line, "FAIL"), strings.HasPrefix(line, "--- FAIL"):
		return fmt.Errorf("bench: go test output: %s", line)
	case strings.HasPrefix(line, "Benchmark"):
		p.result(strings.Fields(line))
	}
	return nil
}

// result reads NAME-PROCS ITERATIONS (VALUE UNIT)...
func (p *goBench) result(fields []string) {
	if len(fields) < 4 || len(fields)%2 != 0 {
		return
	}
	if _, err := strconv.ParseInt(fields[1], 10, 64); err != nil {
		return
	}
	name, procs := strings.TrimPrefix(fields[0], "Benchmark"), "1"
	if cut := strings.LastIndexByte(name, '-'); cut > 0 {
		if n, err := strconv.Atoi(name[cut+1:]); err == nil && n > 1 {
			name, procs = name[:cut], name[cut+1:]
		}
	}
	for i := 2; i+1 < len(fields); i += 2 {
		value, err := strconv.ParseFloat(fields[i], 64)
		if err != nil || math.IsNaN(value) || math.IsInf(value, 0) {
			continue
		}
		unit := fields[i+1]
		row := Row{
			Name:       "go_" + strings.ReplaceAll(unit, "/", "_per_") + "/" + p.pkg + "." + name,
			Unit:       unit,
			Conditions: fmt.Sprintf("go test -bench, GOMAXPROCS=%s, %s", procs, p.cpu),
		}
		if _, again := p.values[row.Name]; !again {
			p.rows = append(p.rows, row)
		}
		p.values[row.Name] = append(p.values[row.Name], value)
	}
}
