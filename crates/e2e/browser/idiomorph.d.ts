// The one function of the vendored library that live.js calls; the server puts both into one module.

declare const Idiomorph: {
  morph(
    before: Element | null,
    after: Element,
    settings: {
      morphStyle: string;
      callbacks: {
        beforeNodeMorphed?: (before: Node, after: Node) => boolean;
        beforeAttributeUpdated?: (name: string, element: Element) => boolean;
      };
    },
  ): void;
};
