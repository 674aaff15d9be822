package report

import (
	_ "embed"
	"html/template"
	"io"
	"strconv"
	"strings"

	"github.com/grapevine-epp/grapevine/internal/lab/replay"
	"github.com/grapevine-epp/grapevine/internal/lab/sweep"
)

//go:embed page/page.html
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

// PlotFigures are the figures that reports draw.
var PlotFigures = []string{"ttft_p90_s", "ttft_mean_s", "tpot_mean_ms", "e2e_p90_s", "hit_ratio"}

type pageRow struct {
	Class  string
	Cell   []string
	Values []pageValue
}

type pageValue struct {
	Text string
	Best bool // of the rows that differ only by the policy
}

type pageSection struct {
	Title string
	Plots []template.HTML
}

// WriteHTML writes one self-contained page with plots and all figures.
func (r *Report) WriteHTML(w io.Writer) error {
	rows, seeds := r.Rows, r.Seeds
	data := struct {
		About    []string
		Seeds    string
		Head     []string
		Figures  []string
		Rows     []pageRow
		Sections []pageSection
	}{About: r.About, Head: cellColumns}
	for _, s := range seeds {
		data.Seeds = strings.TrimPrefix(data.Seeds+", "+strconv.FormatUint(s, 10), ", ")
	}
	for _, key := range PlotFigures {
		section, err := drawSection(rows, key)
		if err != nil {
			return err
		}
		data.Sections = append(data.Sections, section)
	}
	section, err := flightSection(rows)
	if err != nil {
		return err
	}
	if len(section.Plots) > 0 {
		data.Sections = append(data.Sections, section)
	}
	for _, f := range Figures {
		data.Figures = append(data.Figures, caption(f))
	}
	for _, group := range grouped(rows, func(r *sweep.Row) string { return title(&r.Cell, -1, nil) }) {
		data.Rows = append(data.Rows, pageGroup(group)...)
	}
	return page.Execute(w, data)
}

// pageGroup returns the rows of one load on one fleet, the best of each figure
// marked.
func pageGroup(rows []sweep.Row) []pageRow {
	out := make([]pageRow, len(rows))
	for i := range rows {
		out[i].Cell = columns(&rows[i].Cell)
		if rows[i].Policy == replay.Default {
			out[i].Class = "default"
		}
	}
	out[0].Class = strings.TrimSpace("first " + out[0].Class)
	for _, f := range Figures {
		best := mean(&rows[0], f)
		for i := range rows {
			v := mean(&rows[i], f)
			if f.better(v, best) {
				best = v
			}
			out[i].Values = append(out[i].Values, pageValue{Text: strconv.FormatFloat(v, 'f', f.Digit, 64)})
		}
		for i := range out {
			v := &out[i].Values[len(out[i].Values)-1]
			v.Best = len(rows) > 1 && v.Text == strconv.FormatFloat(best, 'f', f.Digit, 64)
		}
	}
	return out
}

func drawSection(rows []sweep.Row, key string) (pageSection, error) {
	f, _ := FigureByKey(key)
	plots, err := Plots(rows, f)
	if err != nil {
		return pageSection{}, err
	}
	return section(caption(f), plots)
}

// flightSection shows the load of single engines.
func flightSection(rows []sweep.Row) (pageSection, error) {
	plots, err := Flights(rows)
	if err != nil {
		return pageSection{}, err
	}
	return section("requests at each engine", plots)
}

func section(title string, plots []Plot) (pageSection, error) {
	out := pageSection{Title: title}
	for i := range plots {
		text, err := plots[i].svg()
		if err != nil {
			return out, err
		}
		out.Plots = append(out.Plots, template.HTML(text)) // drawn here, from numbers and names that plot escapes
	}
	return out, nil
}
