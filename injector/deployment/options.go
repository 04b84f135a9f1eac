package deployment

import (
	"cmp"
	"context"
	"log/slog"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/injector"
)

// World provides the accepted objects.
type World interface {
	ObjectsOf(kind *kinds.Kind) []*kinds.Object // in no particular order
	Object(key kinds.Key) *kinds.Object         // nil if there is none
}

// APIServer answers requests for paths. An *apiserver.Client implements it.
type APIServer interface {
	Get(ctx context.Context, path string) ([]byte, error)
}

// Templates render the objects of a Gateway. An *injector.Injector implements it.
type Templates interface {
	Render(ctx context.Context, template string, g injector.Gateway) ([]map[string]any, error)
}

// ConfigMaps reads ConfigMaps: those with the defaults of classes, and single ones on demand.
type ConfigMaps interface {
	Run(ctx context.Context) error
	Want(objects []kinds.Key)
	Missing() []kinds.Key // requested ConfigMaps that do not exist
	Findings() []diag.Diagnostic
}

// Maps creates sources of ConfigMaps.
type Maps interface {
	// ConfigMaps creates a source that passes ConfigMaps to handler, the first time after it has read all of them.
	// After each call of handler all Gateways must be reconciled.
	ConfigMaps(handler func([]kinds.Change)) (ConfigMaps, error)
}

// DefaultsLabel is the label of a ConfigMap in the system namespace with defaults for Gateways of a class; its value
// names the class.
const DefaultsLabel = names.LabelDefaultsForClass

// ControllerName is the default of Options.Controller.
const ControllerName = names.GatewayController

// Options of a Reconciler.
type Options struct {
	Namespace string  // system namespace
	Revision  string  // empty for default
	Cluster   string  // ID of the cluster
	Classes   []Class // recognised even if the GatewayClass does not exist
	// Controller is the controller in the GatewayClasses whose Gateways are deployed, and the field manager of the written
	// objects. The default is ControllerName.
	Controller string
	World      World
	APIServer  APIServer // for requests of its version
	Templates  Templates
	Maps       Maps
	Logger     *slog.Logger
}

func (o Options) controller() string { return cmp.Or(o.Controller, ControllerName) }
