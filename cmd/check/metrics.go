package check

import (
	"math"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
)

// metrics holds the families of one scrape, by name.
type metrics map[string]*dto.MetricFamily

func valueOf(m *dto.Metric) float64 {
	switch {
	case m.GetGauge() != nil:
		return m.GetGauge().GetValue()
	case m.GetCounter() != nil:
		return m.GetCounter().GetValue()
	}
	return m.GetUntyped().GetValue()
}

// value returns the value of the first series of a metric.
func (m metrics) value(name string) (float64, bool) {
	for _, s := range m[name].GetMetric() {
		return valueOf(s), true
	}
	return 0, false
}

// sum returns the sum of all series of a metric.
func (m metrics) sum(name string) (sum float64) {
	for _, s := range m[name].GetMetric() {
		sum += valueOf(s)
	}
	return sum
}

// labels returns the label values of each series that has the value, sorted.
func (m metrics) labels(name string, value float64) (list []string) {
	for _, s := range m[name].GetMetric() {
		if valueOf(s) != value {
			continue
		}
		var parts []string
		for _, l := range s.GetLabel() {
			if l.GetValue() != "" {
				parts = append(parts, l.GetValue())
			}
		}
		list = append(list, strings.Join(parts, " "))
	}
	slices.Sort(list)
	return list
}

// quantile returns the upper bound of the bucket that contains a quantile of a histogram, and the number of
// observations. The bound is infinite for the last bucket.
func (m metrics) quantile(name string, q float64) (bound float64, count uint64) {
	for _, s := range m[name].GetMetric() {
		h := s.GetHistogram()
		count = h.GetSampleCount()
		for _, b := range h.GetBucket() {
			if float64(b.GetCumulativeCount()) >= q*float64(count) {
				return b.GetUpperBound(), count
			}
		}
	}
	return math.Inf(1), count
}
