package supervisor

// SignalEveryone lets a test see that it refuses outside a container.
var SignalEveryone = signalEveryone
