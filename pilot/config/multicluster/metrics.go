package multicluster

import "github.com/prometheus/client_golang/prometheus"

var syncStatus = prometheus.NewDesc(
	"istiod_remote_cluster_sync_status",
	"Whether a remote cluster has this status, 1 or 0: synced, syncing, timeout (it has not synced in time) or closed (it cannot be read).",
	[]string{"cluster", "cluster_type", "status"}, nil,
)

// syncStatuses is the metric of the statuses of remote clusters. A cluster has no series if neither a Secret nor a file
// names it.
type syncStatuses struct{ *Controller }

func (syncStatuses) Describe(ch chan<- *prometheus.Desc) { ch <- syncStatus }

func (s syncStatuses) Collect(ch chan<- prometheus.Metric) {
	for _, cl := range s.Clusters() {
		for _, status := range []string{Synced, Syncing, Timeout, Closed} {
			v := 0.0
			if status == cl.SyncStatus {
				v = 1
			}
			ch <- prometheus.MustNewConstMetric(syncStatus, prometheus.GaugeValue, v, cl.ID, "remote", status)
		}
	}
}
