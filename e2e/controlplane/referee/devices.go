package referee

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
)

// usesDevices tells whether the plugin DynamicResources has anything to know.
func (d *document) usesDevices() bool {
	return len(d.ResourceClaims)+len(d.ResourceSlices)+len(d.DeviceClasses)+len(d.DeviceTaintRules) > 0
}

// deviceObjects are what the API has of claims and devices.
func (d *document) deviceObjects() []runtime.Object {
	var objects []runtime.Object
	for _, one := range d.ResourceClaims {
		objects = append(objects, one)
	}
	for _, one := range d.ResourceSlices {
		objects = append(objects, one)
	}
	for _, one := range d.DeviceClasses {
		objects = append(objects, one)
	}
	for _, one := range d.DeviceTaintRules {
		objects = append(objects, one)
	}
	return objects
}

func (w *world) draManager() fwk.SharedDRAManager {
	for _, profile := range w.scheduler.Profiles {
		return profile.SharedDRAManager()
	}
	return nil
}

// watchDevices lets the scheduler learn of claims and devices, which it tracks by events and not by its listers. The
// other informers never run: they would find an API without objects.
func (w *world) watchDevices(doc *document) error {
	for _, object := range doc.deviceObjects() {
		if err := w.client.Tracker().Add(object); err != nil {
			return err
		}
	}
	w.rejectOrStamp(doc.Sequence)
	api := w.informers.Resource().V1()
	for _, informer := range []cache.SharedIndexInformer{
		api.ResourceClaims().Informer(), api.ResourceSlices().Informer(), api.DeviceClasses().Informer(),
		api.DeviceTaintRules().Informer(),
	} {
		go informer.Run(w.ctx.Done())
	}
	return w.awaitDevices(doc)
}

// awaitDevices waits until the scheduler has seen all that the API has.
func (w *world) awaitDevices(doc *document) error {
	manager := w.draManager()
	rules := w.informers.Resource().V1().DeviceTaintRules().Informer()
	deadline := time.Now().Add(20 * time.Second)
	for {
		claims, _ := manager.ResourceClaims().List()
		slices, _ := manager.ResourceSlices().ListWithDeviceTaintRules()
		classes, _ := manager.DeviceClasses().List()
		seen := len(claims) == len(doc.ResourceClaims) && len(slices) == len(doc.ResourceSlices) &&
			len(classes) == len(doc.DeviceClasses) && len(rules.GetIndexer().List()) == len(doc.DeviceTaintRules) &&
			w.tainted(doc, slices)
		if seen {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the scheduler has seen %d claims, %d slices, %d classes", len(claims), len(slices), len(classes))
		}
		time.Sleep(200 * time.Microsecond)
	}
}

// tainted tells whether every rule has its effect on the slices.
func (w *world) tainted(doc *document, slices []*resourcev1.ResourceSlice) bool {
	want, have := 0, 0
	for _, slice := range doc.ResourceSlices {
		for _, device := range slice.Spec.Devices {
			want += len(device.Taints)
			for _, rule := range doc.DeviceTaintRules {
				selector := rule.Spec.DeviceSelector
				if selector != nil && (selector.Driver == nil || *selector.Driver == slice.Spec.Driver) &&
					(selector.Pool == nil || *selector.Pool == slice.Spec.Pool.Name) &&
					(selector.Device == nil || *selector.Device == device.Name) {
					want++
				}
			}
		}
	}
	for _, slice := range slices {
		for _, device := range slice.Spec.Devices {
			have += len(device.Taints)
		}
	}
	return want == have
}

// rejectOrStamp makes the API give every written claim another version, as a real one does. Where pods are judged one
// by one in the same world, nothing is written.
func (w *world) rejectOrStamp(keep bool) {
	version := 1000
	w.client.PrependReactor("update", "resourceclaims", func(action clienttesting.Action) (bool, runtime.Object, error) {
		update, is := action.(clienttesting.UpdateAction)
		if !is {
			return false, nil, nil
		}
		claim := update.GetObject().(*resourcev1.ResourceClaim)
		if !keep {
			return true, claim, nil
		}
		version++
		claim.ResourceVersion = strconv.Itoa(version)
		return false, nil, nil
	})
}

// settleDevices waits until the scheduler has seen what was written to claims.
func (w *world) settleDevices(doc *document) error {
	manager := w.draManager()
	deadline := time.Now().Add(20 * time.Second)
	for _, one := range doc.ResourceClaims {
		for {
			object, err := w.client.Tracker().Get(resourcev1.SchemeGroupVersion.WithResource("resourceclaims"), one.Namespace, one.Name)
			if err != nil {
				return err
			}
			seen, err := manager.ResourceClaims().Get(one.Namespace, one.Name)
			if err == nil && seen.ResourceVersion == object.(*resourcev1.ResourceClaim).ResourceVersion {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("the scheduler has not seen what became of claim %s/%s", one.Namespace, one.Name)
			}
			time.Sleep(200 * time.Microsecond)
		}
	}
	return nil
}

// describeClaim tells which devices a claim was given, and for whom; nothing for a write that does not say.
func describeClaim(claim *resourcev1.ResourceClaim) string {
	name := claim.Namespace + "/" + claim.Name
	if claim.Status.Allocation == nil {
		return ""
	}
	allocation := claim.Status.Allocation.DeepCopy()
	allocation.AllocationTimestamp = nil
	for i := range allocation.Devices.Results {
		allocation.Devices.Results[i].ShareID = nil
	}
	var users []string
	for _, user := range claim.Status.ReservedFor {
		users = append(users, user.Name)
	}
	return fmt.Sprintf("devices of %s for %s: %s", name, strings.Join(users, " "), canonical(allocation))
}

// canonical is JSON with sorted keys.
func canonical(object any) string {
	var plain any
	raw, err := json.Marshal(object)
	if err == nil {
		err = json.Unmarshal(raw, &plain)
	}
	if err == nil {
		raw, err = json.Marshal(plain)
	}
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

// defaultClaim gives a claim what every claim from an API server has.
func defaultClaim(claim *resourcev1.ResourceClaim) {
	identify(claim, metav1.NamespaceDefault)
	if claim.ResourceVersion == "" {
		claim.ResourceVersion = "1"
	}
}
