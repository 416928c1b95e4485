// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package metrics shows the counters of all instances to Prometheus. Values are
// taken from the instances when they are asked for; nothing is kept here, and
// there is no global registry.
package metrics

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/isthmus-net/isthmus/internal/role"
)

// namespace starts every name: isthmus_<role>_<metric>.
const namespace = "isthmus"

// NewServer returns the server that answers GET /metrics with the values of the
// instances, of the process and of the Go runtime.
func NewServer(version string, instances []role.Instance) *http.Server {
	registry := prometheus.NewRegistry()
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: namespace, Name: "build_info", Help: "Always 1; the label tells the version.",
		ConstLabels: prometheus.Labels{"version": version},
	})
	build.Set(1)
	registry.MustRegister(
		build,
		collector(instances),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		// One instance with a faulty value must not hide all others.
		ErrorHandling: promhttp.ContinueOnError,
		Registry:      registry,
	}))
	return &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: time.Minute, IdleTimeout: time.Minute}
}

// collector asks the instances at each collection.
type collector []role.Instance

// Describe sends nothing: what roles tell is not known beforehand, which
// prometheus calls an unchecked collector.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect sends the values of now.
func (c collector) Collect(values chan<- prometheus.Metric) {
	for _, instance := range c {
		instance.Collect(func(m role.Metric) {
			kind := prometheus.CounterValue
			if m.Kind == role.Gauge {
				kind = prometheus.GaugeValue
			}
			labels, texts := []string{"instance"}, []string{instance.Name()}
			for _, l := range [...]struct{ name, text string }{{"verdict", m.Verdict}, {"reason", m.Reason}, {"path", m.Path}} {
				if l.text != "" {
					labels, texts = append(labels, l.name), append(texts, l.text)
				}
			}
			name := prometheus.BuildFQName(namespace, instance.Role(), m.Name)
			desc := prometheus.NewDesc(name, m.Help, labels, nil)
			value, err := prometheus.NewConstMetric(desc, kind, m.Value, texts...)
			if err != nil {
				value = prometheus.NewInvalidMetric(desc, err)
			}
			values <- value
		})
	}
}
