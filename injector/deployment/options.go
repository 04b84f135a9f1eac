package deployment

import (
	"context"
	"log/slog"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/injector"
)

// World has the accepted objects.
type World interface {
	ObjectsOf(kind *kinds.Kind) []*kinds.Object // in no order
	Object(key kinds.Key) *kinds.Object         // nil if there is none
}

// APIServer answers requests for paths. An *apiserver.Client is one.
type APIServer interface {
	Get(ctx context.Context, path string) ([]byte, error)
}

// Templates make the objects of a Gateway. An *injector.Injector has some.
type Templates interface {
	Render(ctx context.Context, template string, g injector.Gateway) ([]map[string]any, error)
}

// ConfigMaps reads ConfigMaps: the defaults of classes, and single ones that are wanted.
type ConfigMaps interface {
	Run(ctx context.Context) error
	Want(objects []kinds.Key)
	Missing() []kinds.Key // wanted ones that do not exist
	Findings() []diag.Diagnostic
}

// Maps makes sources of ConfigMaps.
type Maps interface {
	// ConfigMaps makes a source, which hands what it reads to handler, first once it has read all that there are. After
	// each call of handler all Gateways are to be reconciled.
	ConfigMaps(handler func([]kinds.Change)) (ConfigMaps, error)
}

// DefaultsLabel names, on a ConfigMap of the system namespace, the class for whose Gateways it has the defaults.
const DefaultsLabel = names.LabelDefaultsForClass

// ControllerName is the controller of the GatewayClasses whose Gateways are deployed, and the manager of the fields of
// objects.
const ControllerName = names.GatewayController

// Options of a Reconciler.
type Options struct {
	Namespace string  // the system namespace
	Revision  string  // empty means default
	Cluster   string  // ID
	Classes   []Class // recognised even if the GatewayClass does not exist
	World     World
	APIServer APIServer // tells its version
	Templates Templates
	Maps      Maps
	Logger    *slog.Logger
}
