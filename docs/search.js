// The search box turns every word into a prefix and ranks titles first, so that "to" finds each
// title with "token", "tool" or "together". This takes such words out of a query, unless it has no
// others. The message { type: 2, data: QUERY } is the theme's own (mkdocs-material 9).
(() => {
  const QUERY = 2;
  const COMMON = new Set(
    ("a about after all also am an and any are as at be been but by can could did do does for from get had has have " +
      "he her him his how i if in into is it its just let me more most my not of off on one only or other our own " +
      "she should so some than that the their them then there these they this to too upwell us was we were what when " +
      "where which while who why will with would you your " +
      "down happens make need new run say take up use want").split(" "),
  );
  const post = Worker.prototype.postMessage;

  function withoutCommonWords(query) {
    const words = query.split(/\s+/).filter((word) => !COMMON.has(word.toLowerCase().replace(/\W+$/, "")));
    return words.some(Boolean) ? words.join(" ") : query;
  }

  Worker.prototype.postMessage = function (message, ...rest) {
    if (message?.type === QUERY && typeof message.data === "string") {
      message = { ...message, data: withoutCommonWords(message.data) };
    }
    return post.call(this, message, ...rest);
  };
})();
