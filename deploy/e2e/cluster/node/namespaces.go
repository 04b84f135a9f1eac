package node

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// rootMap is the ConfigMap with which pods verify the API server.
const rootMap = "kube-root-ca.crt"

// syncNamespaces adds the required objects to namespaces, and finishes deletions.
func (n *Node) syncNamespaces() error {
	all, err := n.factory.Core().V1().Namespaces().Lister().List(labels.Everything())
	if err != nil {
		return err
	}
	core := n.o.Cluster.Client().CoreV1()
	var errs []error
	for _, ns := range all {
		if ns.DeletionTimestamp != nil {
			errs = append(errs, n.o.Cluster.FinishNamespace(n.ctx, ns.Name))
			continue
		}
		if n.equipped[ns.UID] {
			continue
		}
		_, err := core.ConfigMaps(ns.Name).Create(n.ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: rootMap}, Data: map[string]string{"ca.crt": string(n.o.Cluster.CA())},
		}, metav1.CreateOptions{})
		if err == nil || apierrors.IsAlreadyExists(err) {
			_, err = core.ServiceAccounts(ns.Name).Create(n.ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}},
				metav1.CreateOptions{})
		}
		if err != nil && !apierrors.IsAlreadyExists(err) {
			errs = append(errs, err)
			continue
		}
		n.equipped[ns.UID] = true
	}
	return errors.Join(errs...)
}

// collect deletes objects whose owner is gone.
func (n *Node) collect() error {
	type list struct {
		of    schema.GroupVersionResource
		store cache.Store
	}
	owners := map[string]list{
		"Deployment": {deployments, n.factory.Apps().V1().Deployments().Informer().GetStore()},
		"ReplicaSet": {replicaSets, n.factory.Apps().V1().ReplicaSets().Informer().GetStore()},
		"Job":        {jobs, n.factory.Batch().V1().Jobs().Informer().GetStore()},
		"Service":    {services, n.factory.Core().V1().Services().Informer().GetStore()},
	}
	for kind, r := range n.o.Owners {
		owners[kind] = list{r, n.owners.ForResource(r).Informer().GetStore()}
	}
	owned := []list{
		owners["Deployment"], owners["Service"], owners["ReplicaSet"], owners["Job"],
		{schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}, n.factory.Core().V1().ServiceAccounts().Informer().GetStore()},
		{schema.GroupVersionResource{Version: "v1", Resource: "pods"}, n.factory.Core().V1().Pods().Informer().GetStore()},
		{schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"},
			n.factory.Discovery().V1().EndpointSlices().Informer().GetStore()},
	}
	client := n.o.Cluster.Dynamic()
	var errs []error
	for _, l := range owned {
		for _, o := range l.store.List() {
			m := o.(metav1.Object)
			for _, owner := range m.GetOwnerReferences() {
				of, known := owners[owner.Kind]
				if !known || m.GetDeletionTimestamp() != nil || has(of.store, m.GetNamespace(), owner) {
					continue
				}
				// The cache may be behind.
				now, err := client.Resource(of.of).Namespace(m.GetNamespace()).Get(n.ctx, owner.Name, metav1.GetOptions{})
				if err == nil && now.GetUID() == owner.UID || err != nil && !apierrors.IsNotFound(err) {
					errs = append(errs, err)
					continue
				}
				err = client.Resource(l.of).Namespace(m.GetNamespace()).
					Delete(n.ctx, m.GetName(), metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(m.GetUID()))})
				if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
					errs = append(errs, err)
				}
			}
		}
	}
	return errors.Join(errs...)
}

// has reports whether an owner exists.
func has(store cache.Store, namespace string, owner metav1.OwnerReference) bool {
	o, there, err := store.GetByKey(namespace + "/" + owner.Name)
	return err == nil && there && o.(metav1.Object).GetUID() == owner.UID
}
