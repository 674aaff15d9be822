package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/report"
	"github.com/grapevine-epp/grapevine/internal/lab/sweep"
	"github.com/grapevine-epp/grapevine/internal/lab/trace"
)

// trace adds a description of a trace.
func (a *aboutGrid) trace(t *trace.Trace) {
	n := len(t.Requests)
	input, output := 0, 0
	for i := range t.Requests {
		input, output = input+t.Requests[i].Input, output+t.Requests[i].Output
	}
	line := fmt.Sprintf("trace %s: %d requests of %d sessions in %v, %.2f per second; %d prompt and %d answer tokens on average",
		t.Name, n, t.Sessions, t.Length.Round(time.Second), t.Rate(), input/n, output/n)
	r := &t.Recorded
	if r.Counted > 0 {
		line += fmt.Sprintf("; engines counted %.3f of the prompt tokens as cached (%d answers)", r.HitRatio(), r.Counted)
	}
	a.lines = append(a.lines, line)
	if r.Unseen > 0 {
		how := "drawn from the others"
		if r.Unseen == n {
			how = "assumed"
		}
		a.notes = append(a.notes, fmt.Sprintf("trace %s: the length of %d of %d answers was not recorded and is %s", t.Name, r.Unseen, n, how))
	}
	if r.LeftOut > 0 {
		a.notes = append(a.notes, fmt.Sprintf("trace %s: %d requests that failed or were refused by engines (4xx) are left out", t.Name, r.LeftOut))
	}
	if t.Model != "" {
		a.notes = append(a.notes, fmt.Sprintf("trace %s: assumed, because the file does not specify it: %s", t.Name, t.Model))
	}
}

// complaints lists the policies that left requests unanswered, with reasons.
func complaints(rows []sweep.Row) []string {
	var names []string
	asked, why := map[string]int{}, map[string]map[string]int{}
	for i := range rows {
		name := rows[i].Policy
		if why[name] == nil {
			names, why[name] = append(names, name), map[string]int{}
		}
		for _, run := range rows[i].Runs {
			asked[name] += run.Requests
			for reason, n := range run.Reasons {
				why[name][reason] += n
			}
		}
	}
	var out []string
	for _, name := range names {
		for _, reason := range slices.Sorted(maps.Keys(why[name])) {
			out = append(out, fmt.Sprintf("%s: %d of %d requests were not answered: %s", name, why[name][reason], asked[name], reason))
		}
	}
	return out
}

func (f *replayFlags) write(r report.Report, out io.Writer) error {
	files := []struct {
		path  string
		write func(io.Writer) error
	}{{f.csv, r.WriteCSV}, {f.json, r.WriteJSON}, {f.html, r.WriteHTML}}
	for _, file := range files {
		if err := writeTo(file.path, out, file.write); err != nil {
			return err
		}
	}
	if err := f.draw(&r); err != nil {
		return err
	}
	if f.json == "-" || f.csv == "-" || f.html == "-" {
		return nil
	}
	return r.WriteTable(out)
}

// draw writes one file for each plot.
func (f *replayFlags) draw(r *report.Report) error {
	if f.plots == "" {
		return nil
	}
	if err := os.MkdirAll(f.plots, 0o755); err != nil {
		return err
	}
	all, err := report.Flights(r.Rows)
	if err != nil {
		return err
	}
	for _, key := range report.PlotFigures {
		figure, _ := report.FigureByKey(key)
		plots, err := report.Plots(r.Rows, figure)
		if err != nil {
			return err
		}
		all = append(all, plots...)
	}
	for _, p := range all {
		path := filepath.Join(f.plots, p.Name+"."+f.format)
		if err := writeTo(path, nil, func(w io.Writer) error { return p.Write(w, f.format) }); err != nil {
			return err
		}
	}
	return nil
}

// writeTo calls write with a new file, or with out for "-".
func writeTo(path string, out io.Writer, write func(io.Writer) error) error {
	switch path {
	case "":
		return nil
	case "-":
		return write(out)
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(file), file.Close())
}
