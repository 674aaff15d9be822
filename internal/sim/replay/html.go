package replay

import (
	_ "embed"
	"html/template"
	"io"
	"strconv"
	"strings"
)

//go:embed page/page.html
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

// PlotFigures are the figures that reports draw.
var PlotFigures = []string{"ttft_p90_s", "ttft_mean_s", "tpot_mean_ms", "e2e_p90_s", "hit_ratio"}

type pageRow struct {
	Class  string
	Cell   []string
	Values []string
}

type pageSection struct {
	Title string
	Plots []template.HTML
}

// WriteHTML writes one page that needs nothing else: plots and all figures.
func WriteHTML(w io.Writer, rows []Row, seeds []uint64) error {
	data := struct {
		Seeds    string
		Head     []string
		Figures  []string
		Rows     []pageRow
		Sections []pageSection
	}{Head: cellColumns}
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
	for _, f := range Figures {
		data.Figures = append(data.Figures, caption(f))
	}
	for i := range rows {
		data.Rows = append(data.Rows, pageRowOf(rows, i))
	}
	return page.Execute(w, data)
}

func pageRowOf(rows []Row, i int) pageRow {
	r := &rows[i]
	out := pageRow{Cell: r.columns()}
	if i == 0 || rows[i-1].Source != r.Source || rows[i-1].Load != r.Load {
		out.Class = "first "
	}
	if r.Policy == Default {
		out.Class += "default"
	}
	for _, f := range Figures {
		out.Values = append(out.Values, strconv.FormatFloat(r.Mean(f), 'f', f.Digit, 64))
	}
	return out
}

func drawSection(rows []Row, key string) (pageSection, error) {
	f, _ := FigureByKey(key)
	out := pageSection{Title: caption(f)}
	plots, err := Plots(rows, f)
	for i := range plots {
		text, drawErr := plots[i].svg()
		if drawErr != nil {
			return out, drawErr
		}
		out.Plots = append(out.Plots, template.HTML(text)) // drawn here, from numbers and names that plot escapes
	}
	return out, err
}
