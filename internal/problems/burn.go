package problems

import (
	"strconv"
	"strings"
)

// An objective allows a share of requests to fail or to be late. Alerts on it compare the share of
// bad requests over a long window with a multiple of the allowed share. A short window in addition
// ends the alert soon after the bad requests. Windows and factors are those of the Site Reliability
// Workbook, chapter 5.

// window is a pair of windows and the factor of the allowed share.
type window struct {
	long, short string
	factor      float64
}

var (
	fast = []window{{"1h", "5m", 14.4}, {"6h", "30m", 6}} // 2% of a month's budget in an hour, 5% in six
	slow = []window{{"1d", "2h", 3}, {"3d", "6h", 1}}     // 10% of a month's budget in a day, or in three
)

// Expressions for one window.
const (
	errorsOver = "sum by (model) (rate(grapevine_user_errors_total{$NS}[$WINDOW])) / sum by (model) (rate(grapevine_user_requests_total{$NS}[$WINDOW])) > $FACTOR * $ERRORS / 100"
	// A share above x is late exactly if the quantile 1-x is above the limit.
	lateOver = "histogram_quantile(1 - $FACTOR * $LATE / 100, sum by (model, le) (rate(grapevine_user_first_token_seconds_bucket{$NS}[$WINDOW]))) > $FIRST"
)

// burns returns an expression that holds while both windows of a pair exceed their share.
func burns(over string, pairs ...window) string {
	var list []string
	for _, w := range pairs {
		factor := strconv.FormatFloat(w.factor, 'g', -1, 64)
		in := func(length string) string {
			return strings.NewReplacer("$WINDOW", length, "$FACTOR", factor).Replace(over)
		}
		list = append(list, "("+in(w.long)+" and "+in(w.short)+")")
	}
	return strings.Join(list, " or ")
}

// Objectives are the values of the rules. Each is a number, or an expression of a template.
type Objectives struct {
	Namespace         string // quoted
	Errors            string // percent of a model's requests that may fail
	FirstTokenSeconds string // the latest first token
	LateFirstTokens   string // percent of first tokens that may be later
}

// Chart are the objectives as values of the Helm chart.
var Chart = Objectives{
	Namespace:         "{{ .Release.Namespace | quote }}",
	Errors:            "{{ .Values.monitoring.objectives.errors }}",
	FirstTokenSeconds: "{{ .Values.monitoring.objectives.firstTokenSeconds }}",
	LateFirstTokens:   "{{ .Values.monitoring.objectives.lateFirstTokens }}",
}

// fill replaces the placeholders of an expression.
func (o *Objectives) fill(expr string) string {
	return strings.NewReplacer("$NS", "namespace="+o.Namespace, "$ERRORS", o.Errors, "$FIRST", o.FirstTokenSeconds, "$LATE", o.LateFirstTokens).Replace(expr)
}

const (
	countedAsErrors = "Errors are status 500 and above, a full engine's 429 or 503, an error inside an answer, no answer, and requests without an endpoint or capacity. " +
		"The objective is `monitoring.objectives.errors` of the chart (0.1%)."
	objectiveOfTokens = "The objective is `monitoring.objectives.firstTokenSeconds` of the chart (2 s) for all but `lateFirstTokens` percent (5%). " +
		"The time runs from the decision to the first token of streamed answers that the picker sees. It includes no wait for capacity."
)
